// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_DEFERRED_REDUCTIONS_H_
#define HVD_PARTIAL_ENGINE_DEFERRED_REDUCTIONS_H_

#include <cstdint>
#include <list>
#include <memory>

#include "base/status.h"
#include "collective/allreduce.h"
#include "protocol/member.h"

namespace hvd_partial {

// Reductions that go on beside the present round, because a process which
// takes part in them stands still. They end by themselves when it goes on.
// Belongs to the progress thread.
class DeferredReductions {
 public:
  struct Reduction {
    std::unique_ptr<Allreduce> allreduce;
    std::uint8_t* buffer = nullptr;
    std::uint8_t* scratch = nullptr;
    Snapshot own;        // what this rank put into it
    bool wanted = true;  // false: the sum came from another rank, but others need this one's part
  };

  void add(Reduction reduction) { reductions_.push_back(std::move(reduction)); }
  // Moves them on. True if one has ended, or failed.
  bool step();
  const Status& status() const { return status_; }
  // That of this round, if it has ended; leaves it to the caller.
  bool take(std::uint64_t round, Reduction* reduction);
  // One that has ended and that nobody wants.
  bool take_unwanted(Reduction* reduction);
  int count() const { return static_cast<int>(reductions_.size()); }
  // Forgets their transfers; the caller has called cancel_all().
  void reset();

 private:
  template <typename Predicate>
  bool take_if(Predicate wanted, Reduction* reduction);

  std::list<Reduction> reductions_;
  Status status_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_DEFERRED_REDUCTIONS_H_

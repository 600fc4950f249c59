// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_KEPT_RESULTS_H_
#define HVD_PARTIAL_ENGINE_KEPT_RESULTS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "base/status.h"
#include "engine/buffer_pool.h"
#include "protocol/messages.h"
#include "transport/transport.h"

namespace hvd_partial {

// The sums of rounds that are complete on this rank, as long as anybody needs
// them: its user, or a rank that was left out and must be given them. The
// newest one stays in any case, because the ranks may be a round apart when one
// of them stops answering.
//
// The caller serialises all calls.
class KeptResults {
 public:
  // `keeps`: whether anybody can be left out; if not, a buffer goes back to the
  // pool with its last reader.
  KeptResults(Transport* transport, BufferPool* pool, std::size_t bytes, bool keeps);

  // A round is complete; its user is going to read it, or not.
  void add(std::uint64_t round, std::uint8_t* buffer, bool to_be_read);
  // The user has read it, or never will.
  void release(std::uint64_t round);
  // Results of this round and later ones may have to be given to others.
  void keep_from(std::uint64_t round);
  bool needs(std::uint64_t round) const {
    return keeps_ && (round >= keep_from_ || ordered(round));
  }

  // This rank has to give these, as soon as it has them.
  void deliver(const Deliver& order) { orders_.push_back(order); }
  // Gives what it can. Fails if a transfer does, or if something is gone.
  Status step();
  bool delivering() const { return !orders_.empty() || !sends_.empty(); }

 private:
  struct Entry {
    std::uint64_t round = 0;
    std::uint8_t* buffer = nullptr;
    bool to_be_read = false;
    int sends = 0;
  };
  struct Send {
    std::uint64_t round = 0;
    Completion completion;
  };

  Entry* find(std::uint64_t round);
  bool ordered(std::uint64_t round) const;
  void trim();

  Transport* transport_;
  BufferPool* pool_;
  const std::size_t bytes_;
  const bool keeps_;
  std::uint64_t keep_from_ = kNoRound;
  std::uint64_t newest_ = kNoRound;
  std::vector<Entry> entries_;
  std::vector<Deliver> orders_;  // `first` moves on
  std::list<Send> sends_;        // completions stay where they are
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_KEPT_RESULTS_H_

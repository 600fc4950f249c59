// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_COLLECTIVE_ALLREDUCE_H_
#define HVD_PARTIAL_COLLECTIVE_ALLREDUCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/plan.h"
#include "collective/tensor_layout.h"
#include "transport/transport.h"

namespace hvd_partial {

// Runs one in-place allreduce at a time over a transport, without blocking:
// start(), then step() until it returns true. Allocates nothing once the set
// of members is stable.
class Allreduce {
 public:
  // Makes the plan of one member; all members use the same function.
  using Planner = Plan (*)(int members, int index, std::size_t bytes);

  // `scratch` (layout.bytes() long) and everything else must outlive this.
  Allreduce(Transport* transport, const TensorLayout* layout, std::uint8_t* scratch,
            Planner planner = choose_plan);
  Allreduce(const Allreduce&) = delete;
  Allreduce& operator=(const Allreduce&) = delete;

  // `members`: sorted ranks that take part, this one among them. `tag_base`
  // is unique for (channel, round) and leaves the low kTagBits zero. Nothing
  // is sent or received before step().
  void start(const std::vector<int>& members, std::uint64_t tag_base, std::uint8_t* buffer);
  bool active() const { return active_; }
  // Advances as far as possible. True once the sum is complete (then active()
  // is false again) or a transfer failed (see status(); it stays active, for
  // other transfers may still be under way, until reset()).
  bool step();
  const Status& status() const { return status_; }
  // Forgets the present reduction; the caller has called cancel_all().
  void reset();

  static constexpr int kTagBits = 12;

 private:
  // How many steps may be under way, so that the latency of one hides behind
  // the transfers of the others.
  static constexpr std::size_t kWindow = 4;

  bool may_post(const PlanStep& next) const;
  void post(std::size_t number);
  void finish(std::size_t number);

  struct Transfers {
    Completion send;
    Completion recv;
  };

  Transport* transport_;
  const TensorLayout* layout_;
  std::uint8_t* scratch_;
  Planner planner_;
  std::vector<int> members_;
  Plan plan_;
  std::size_t window_ = 1;
  // Steps [finished_, posted_) are under way.
  std::size_t finished_ = 0;
  std::size_t posted_ = 0;
  std::uint64_t tag_base_ = 0;
  std::uint8_t* buffer_ = nullptr;
  bool active_ = false;
  std::array<Transfers, kWindow> transfers_;  // of step n: n % kWindow
  Status status_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_COLLECTIVE_ALLREDUCE_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_COLLECTIVE_PLAN_H_
#define HVD_PARTIAL_COLLECTIVE_PLAN_H_

#include <cstddef>
#include <vector>

namespace hvd_partial {

// One step of an allreduce as one member sees it: an optional send and an
// optional receive that go on at the same time, over byte ranges of the flat
// buffer. Received bytes are added to the buffer's range, or replace it. The
// two ranges overlap only in a step that adds.
struct PlanStep {
  static constexpr int kNobody = -1;

  int send_to = kNobody;  // member index, not rank
  std::size_t send_begin = 0;
  std::size_t send_end = 0;
  int recv_from = kNobody;
  std::size_t recv_begin = 0;
  std::size_t recv_end = 0;
  bool add = false;  // false: the received range replaces what is there
};

// A whole allreduce of one member. Pure data: the same (members, bytes) gives
// matching plans on all members: what one sends in its n-th step the other
// receives in its n-th step. Empty ranges are not transferred.
struct Plan {
  // With more there would not be enough tags for one reduction.
  static constexpr std::size_t kMaxSteps = 4096;
  // Long ranges are cut into steps of about this many bytes, so that one part
  // is added while it is in the cache and the next is under way.
  static constexpr std::size_t kChunkBytes = 64 * 1024;

  std::vector<PlanStep> steps;
  // Largest range that is received to be added.
  std::size_t scratch_bytes = 0;
};

// Latency-bound sizes: log2(members) exchanges of everything. Any number of
// members: those beyond the largest power of two fold into a partner first.
// Every member computes bitwise the same sum.
Plan recursive_doubling_plan(int members, int index, std::size_t bytes);

// Between: reduce-scatter by halving and allgather by doubling what is
// exchanged: 2 * log2(members) exchanges that send twice the bytes in all, and
// twice as much again where members fold as in recursive doubling.
Plan halving_doubling_plan(int members, int index, std::size_t bytes);

// Bandwidth-bound sizes: reduce-scatter and allgather around a ring, slices
// at TensorLayout::kAlignment boundaries (some may be empty).
Plan ring_plan(int members, int index, std::size_t bytes);

// The choice between them, as measured with 2 to 8 processes on one host.
Plan choose_plan(int members, int index, std::size_t bytes);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_COLLECTIVE_PLAN_H_

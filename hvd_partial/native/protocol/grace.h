// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_GRACE_H_
#define HVD_PARTIAL_PROTOCOL_GRACE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace hvd_partial {

// Learns how long a round whose quorum is complete should still wait for the
// rest. A rank that arrives within a tenth of the time between two rounds is
// in step, and its jitter is covered generously: in a balanced job that costs
// nothing, because the round starts when the last rank comes. A rank that is
// later than that is late, teaches nothing, and is not waited for longer than
// that tenth. Fed with arrival times only; fixed memory.
class GraceEstimator {
 public:
  // Before anything is known.
  static constexpr double kInitialSeconds = 0.02;

  // The quorum of `round` was complete at `now`.
  void on_quorum(std::uint64_t round, double now);
  // A rank arrived `deviation` seconds before or after the quorum of its
  // round was complete (the arrival that completed it does not count).
  void on_deviation(double deviation);
  // Time at which the quorum of `round` was complete; negative if forgotten.
  double quorum_time(std::uint64_t round) const;

  double seconds() const;

 private:
  // Windows: short enough to follow a change within some dozen rounds, long
  // enough that one burst of delays does not move a median.
  static constexpr std::size_t kDeviations = 64;
  static constexpr std::size_t kRounds = 32;
  // Multiple of the deviation that nine of ten arrivals in step stay below:
  // enough for jitter with long tails, which that of operating systems has.
  static constexpr double kMargin = 2.5;
  static constexpr double kCommon = 0.9;
  static constexpr double kLargestShareOfInterval = 0.1;

  std::array<double, kDeviations> deviations_{};
  std::size_t deviation_count_ = 0;  // ever
  std::array<double, kRounds> quorum_times_{};
  std::uint64_t rounds_ = 0;  // rounds 0..rounds_-1 have had their quorum
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_GRACE_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/grace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace hvd_partial {
namespace {

// The value that a share of [begin, end) stays below; reorders it.
template <typename Iterator>
double quantile(Iterator begin, Iterator end, double share) {
  const auto position = begin + static_cast<std::ptrdiff_t>((end - begin) * share);
  std::nth_element(begin, position, end);
  return *position;
}

}  // namespace

void GraceEstimator::on_quorum(std::uint64_t round, double now) {
  quorum_times_[round % kRounds] = now;
  rounds_ = round + 1;
}

void GraceEstimator::on_deviation(double deviation) {
  deviations_[deviation_count_++ % kDeviations] = std::abs(deviation);
}

double GraceEstimator::quorum_time(std::uint64_t round) const {
  const bool known = round < rounds_ && round + kRounds >= rounds_;
  return known ? quorum_times_[round % kRounds] : -1;
}

double GraceEstimator::seconds() const {
  constexpr std::size_t kEnough = 8;
  const std::size_t rounds = std::min<std::uint64_t>(rounds_, kRounds);
  if (deviation_count_ < kEnough || rounds < kEnough) return kInitialSeconds;

  std::array<double, kRounds> intervals{};
  for (std::size_t i = 0; i + 1 < rounds; ++i) {
    const std::uint64_t round = rounds_ - rounds + i;
    intervals[i] = quorum_times_[(round + 1) % kRounds] - quorum_times_[round % kRounds];
  }
  const double largest =
      kLargestShareOfInterval * quantile(intervals.begin(), intervals.begin() + (rounds - 1), 0.5);

  std::array<double, kDeviations> deviations = deviations_;
  const auto end = deviations.begin() + std::min(deviation_count_, kDeviations);
  const auto in_step = std::partition(deviations.begin(), end,
                                      [largest](double deviation) { return deviation < largest; });
  // Hardly anybody ever comes in time after the quorum: no use waiting.
  if (static_cast<std::size_t>(in_step - deviations.begin()) < kEnough / 2) return 0;
  return std::min(kMargin * quantile(deviations.begin(), in_step, kCommon), largest);
}

}  // namespace hvd_partial

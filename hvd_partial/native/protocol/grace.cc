// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/grace.h"

#include <algorithm>
#include <cmath>

namespace hvd_partial {
namespace {

template <typename Iterator>
double median(Iterator begin, Iterator end) {
  const auto middle = begin + (end - begin) / 2;
  std::nth_element(begin, middle, end);
  return *middle;
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

  std::array<double, kDeviations> deviations = deviations_;
  const std::size_t count = std::min(deviation_count_, kDeviations);
  const double spread = median(deviations.begin(), deviations.begin() + count);

  std::array<double, kRounds> intervals{};
  for (std::size_t i = 0; i + 1 < rounds; ++i) {
    const std::uint64_t round = rounds_ - rounds + i;
    intervals[i] = quorum_times_[(round + 1) % kRounds] - quorum_times_[round % kRounds];
  }
  const double interval = median(intervals.begin(), intervals.begin() + (rounds - 1));
  return std::min(kSpread * spread, kLargestShareOfInterval * interval);
}

}  // namespace hvd_partial

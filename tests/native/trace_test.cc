// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "simulation/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace hvd_partial {
namespace {

using Kind = DelaySource::Kind;
constexpr int kRanks = 8;
constexpr int kSteps = 5000;

std::vector<double> all_delays(const Trace& trace) {
  std::vector<double> delays;
  for (int step = 0; step < kSteps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) delays.push_back(trace.seconds(rank, step));
  }
  std::sort(delays.begin(), delays.end());
  return delays;
}

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size()))];
}

TEST(Trace, LogNormalHasItsMedianAndSpread) {
  const auto delays = all_delays(Trace(kRanks, 1, 0, {{Kind::kLogNormal, 0.05, 1}}));
  EXPECT_NEAR(quantile(delays, 0.5), 0.05, 0.002);
  EXPECT_NEAR(quantile(delays, 0.8413), 0.05 * std::exp(1.0), 0.005);  // one sigma
}

TEST(Trace, ParetoHasItsMinimumAndTail) {
  const auto delays = all_delays(Trace(kRanks, 1, 0, {{Kind::kPareto, 0.02, 2}}));
  EXPECT_GE(delays.front(), 0.02);
  EXPECT_NEAR(quantile(delays, 0.75), 0.04, 0.002);  // minimum * 4^(1/2)
  EXPECT_NEAR(quantile(delays, 0.99), 0.2, 0.03);    // minimum * 100^(1/2)
}

TEST(Trace, OneRandomRankIsLateInEachStepAndAllAreInTurn) {
  const Trace trace(kRanks, 1, 0.1, {{Kind::kOneRandom, 0.2, 0}});
  std::vector<int> late(kRanks, 0);
  for (int step = 0; step < kSteps; ++step) {
    int late_ranks = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool is_late = trace.seconds(rank, step) > 0.2;
      late[rank] += is_late ? 1 : 0;
      late_ranks += is_late ? 1 : 0;
    }
    ASSERT_EQ(late_ranks, 1) << "step " << step;
  }
  for (const int count : late) EXPECT_NEAR(count, kSteps / kRanks, 100);
}

TEST(Trace, RotatingDelaysMoveOnByOneRank) {
  const Trace trace(kRanks, 1, 0, {{Kind::kRotating, 0.05, 0.4}});
  EXPECT_DOUBLE_EQ(trace.seconds(0, 0), 0.05);
  EXPECT_DOUBLE_EQ(trace.seconds(7, 0), 0.4);
  for (int step = 0; step < 20; ++step) {
    for (int rank = 0; rank + 1 < kRanks; ++rank) {
      EXPECT_DOUBLE_EQ(trace.seconds(rank, step + 1), trace.seconds(rank + 1, step));
    }
  }
}

TEST(Trace, OneSlowRankMayBeCountedFromTheEnd) {
  const Trace trace(kRanks, 1, 0.1, {{Kind::kOneSlow, -1, 0.3}, {Kind::kConstant, 0.05, 0}});
  EXPECT_DOUBLE_EQ(trace.seconds(7, 3), 0.45);
  EXPECT_DOUBLE_EQ(trace.seconds(6, 3), 0.15);
}

TEST(Trace, PausesComeAsOftenAsTheySay) {
  const auto delays = all_delays(Trace(kRanks, 1, 0, {{Kind::kPauses, 0.1, 2}}));
  EXPECT_NEAR(std::count(delays.begin(), delays.end(), 2.0) / (1.0 * kRanks * kSteps), 0.1, 0.005);
}

TEST(Trace, RecordedStepsAreRepeatedAndSharedOut) {
  const std::vector<std::vector<double>> recorded{{1, 2, 3}, {10, 20, 30}};
  const Trace trace(4, 0, 0, {}, recorded);
  EXPECT_EQ(trace.seconds(1, 0), 10);
  EXPECT_EQ(trace.seconds(1, 4), 20);
  // Ranks 2 and 3 use them again; what happened together stays together.
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(trace.seconds(3, step), 10 * trace.seconds(2, step));
  }
}

TEST(Trace, SeedsDifferAndAreRepeatable) {
  const auto draw = [](std::uint64_t seed) {
    return Trace(kRanks, seed, 0, {{Kind::kLogNormal, 0.05, 1}}).seconds(3, 17);
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

}  // namespace
}  // namespace hvd_partial

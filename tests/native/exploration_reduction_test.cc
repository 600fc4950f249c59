// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What makes the exploration small leaves nothing out: small jobs are explored
// with and without it.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "exploration_cases.h"

namespace hvd_partial {
namespace {

class Reduction : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!wanted(GetParam().extent)) GTEST_SKIP() << "large: HVD_PARTIAL_EXPLORE=all, no sanitizer";
  }
};

INSTANTIATE_TEST_SUITE_P(
    Small, Reduction,
    ::testing::Values(
        Case{"TwoRanks", Extent::kMedium, {{"aaaf", "aaf"}, {}, 1}},
        Case{"TwoRanksWithRoom", Extent::kMedium, {{"aaaf", "aaaf"}, {}, 2}},
        Case{"OneLeaves", Extent::kMedium, {{"aaf", "aal"}, {}, 2}},
        Case{"ModeChanges", Extent::kMedium, {{"asaf", "aaof"}, {}, 2}},
        Case{"ToAsync", Extent::kMedium, {{"ayaf", "aaf"}, {}, 2}},
        Case{"LatestOnly", Extent::kSmall, {{"aaf", "aaf"}, {}, 1, 0, true, true}},
        Case{"ThreeRanks", Extent::kMedium, {{"af", "af", "al"}, {}, 1}},
        Case{"ThreeRanksTwoRounds", Extent::kLarge, {{"aaf", "aaf", "aaf"}, {}, 1}},
        Case{"LossOfRankZero", Extent::kMedium, {{"aaf", "aal"}, {}, 1, 0, false, false, 0}},
        Case{"Loss", Extent::kMedium, {{"aaf", "aal"}, {}, 1, 0, false, false, 1}},
        Case{"LossAmongThree", Extent::kLarge, {{"af", "af", "al"}, {}, 1, 0, false, false, 2}}),
    [](const auto& info) { return std::string(info.param.name); });

// One key, one future: nothing that matters is missing in it.
TEST_P(Reduction, AKeyDecidesTheFuture) {
  for (const bool reduced : {false, true}) {
    Search search;
    search.reduced = reduced;
    search.check_keys = true;
    expect_sound(GetParam().job, search);
  }
}

TEST_P(Reduction, UrgentEventsCommuteWithAllOthers) {
  if (GetParam().job.victim >= 0) GTEST_SKIP() << "exact without a loss only, see World::urgent()";
  Search search;
  search.reduced = false;
  search.check_urgent = true;
  expect_sound(GetParam().job, search);
}

TEST_P(Reduction, LeadsToTheSameEnds) {
  if (GetParam().job.victim >= 0) GTEST_SKIP() << "exact without a loss only, see World::urgent()";
  for (const Mode& mode : all_modes()) {
    for (const double grace : {0.0, 1.0}) {
      Job job = GetParam().job;
      job.mode = mode;
      job.grace = grace;
      std::vector<Key> ends[2];
      std::size_t states[2];
      for (const bool reduced : {false, true}) {
        Search search;
        search.reduced = reduced;
        search.keep_ends = true;
        const Outcome outcome = explore(job, search);
        ASSERT_EQ(outcome.broken, "");
        ends[reduced] = outcome.end_keys;
        states[reduced] = outcome.states;
      }
      EXPECT_EQ(ends[0], ends[1]) << to_string(mode) << ": " << ends[0].size() << " ends, "
                                  << ends[1].size() << " with the reduction";
      EXPECT_LT(states[1], states[0]) << to_string(mode) << ": nothing is reduced";
    }
  }
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// All interleavings of a small job: the real Coordinator and the real Members
// between queues of messages, every event at every moment at which it can
// happen, each state looked at once. Ghost state beside them knows which
// contributions went where, and checks the invariants of docs/design.md.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "exploration_cases.h"

namespace hvd_partial {
namespace {

Job job(std::vector<std::string> programs, int max_lag) {
  Job job;
  job.programs = std::move(programs);
  job.max_lag = max_lag;
  return job;
}

Job slowly(Job job) {
  job.reads_slowly = true;
  return job;
}

Job latest(Job job) {
  job.latest_only = true;
  job.reads_slowly = true;
  return job;
}

const std::vector<Case> kTwoRanks{
    {"ThreeRounds", Extent::kMedium, job({"aaaf", "aaaf"}, 1)},
    {"WithRoomInTheRing", Extent::kMedium, job({"aaaf", "aaaf"}, 2)},
    {"ReadingSlowly", Extent::kMedium, slowly(job({"aaaf", "aaaf"}, 2))},
    {"GoingOnAfterAFlush", Extent::kMedium, job({"aafaf", "afaf"}, 2)},
    {"FewerBatches", Extent::kSmall, job({"aaaf", "af"}, 2)},
    {"NoBatch", Extent::kSmall, job({"aaf", "f"}, 1)},
    {"OneLeaves", Extent::kMedium, job({"aaaf", "aal"}, 2)},
    {"AllLeaveWithoutAFlush", Extent::kMedium, job({"aaa", "aa"}, 2)},
    {"AModeChange", Extent::kMedium, job({"asaaf", "aaaf"}, 2)},
    {"TwoModeChanges", Extent::kMedium, job({"asaf", "aaof"}, 2)},
    {"ToAsync", Extent::kMedium, job({"ayaaf", "aaaf"}, 2)},
    {"LatestOnly", Extent::kMedium, latest(job({"aaaf", "aaaf"}, 1))},
    {"LatestOnlyAfterAFlush", Extent::kMedium, latest(job({"aafaf", "afaf"}, 1))},
    {"LatestOnlyOneLeaves", Extent::kMedium, latest(job({"aaaf", "aal"}, 1))},
    {"SixRounds", Extent::kMedium, job({"aaaaaaf", "aaaaaaf"}, 3)},
};

const std::vector<Case> kThreeRanks{
    {"OneRound", Extent::kMedium, job({"af", "af", "af"}, 1)},
    {"ThreeRounds", Extent::kMedium, job({"aaaf", "aaaf", "aaaf"}, 1)},
    {"WithRoomInTheRing", Extent::kMedium, job({"aaaf", "aaaf", "aaaf"}, 2)},
    {"ReadingSlowly", Extent::kLarge, slowly(job({"aaaf", "aaaf", "aaaf"}, 2))},
    {"FewerBatches", Extent::kMedium, job({"aaaf", "aaf", "af"}, 2)},
    {"OneLeaves", Extent::kMedium, job({"aaaf", "aaaf", "aal"}, 2)},
    {"AllLeaveWithoutAFlush", Extent::kMedium, job({"aaa", "aaa", "aa"}, 2)},
    {"GoingOnAfterAFlush", Extent::kMedium, job({"aafaf", "afaf", "afaf"}, 1)},
    {"AModeChange", Extent::kMedium, job({"asaaf", "aaaf", "aaaf"}, 2)},
    {"TwoModeChanges", Extent::kLarge, job({"aoaaf", "aasaf", "aaaf"}, 2)},
    {"ToAsync", Extent::kMedium, job({"ayaaf", "aaaf", "aaaf"}, 1)},
    {"LatestOnly", Extent::kLarge, latest(job({"aaaf", "aaaf", "aaaf"}, 1))},
    {"EverythingAtOnce", Extent::kLarge, job({"asafaaf", "aafaf", "aaal"}, 2)},
    {"FourRounds", Extent::kLarge, job({"aaaaf", "aaaaf", "aaaaf"}, 3)},
};

class Exploration : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(TwoRanks, Exploration, ::testing::ValuesIn(kTwoRanks),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(ThreeRanks, Exploration, ::testing::ValuesIn(kThreeRanks),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Exploration, AllInvariantsInEveryState) {
  if (!wanted(GetParam().extent)) GTEST_SKIP() << "large: HVD_PARTIAL_EXPLORE=all, no sanitizer";
  expect_sound(GetParam().job);
}

}  // namespace
}  // namespace hvd_partial

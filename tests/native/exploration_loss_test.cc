// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// A rank dies, at every moment of every interleaving; what it had sent arrives
// or does not. Every survivor ends with a failure that names it, or, if it was
// done and nobody needed it any more, as if nothing had happened.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "exploration_cases.h"

namespace hvd_partial {
namespace {

Job job(std::vector<std::string> programs, int max_lag, bool latest_only = false) {
  Job job;
  job.programs = std::move(programs);
  job.max_lag = max_lag;
  job.latest_only = job.reads_slowly = latest_only;
  return job;
}

const std::vector<Case> kCases{
    {"TwoRanks", Extent::kSmall, job({"aaf", "aaf"}, 1)},
    {"TwoRanksThreeRounds", Extent::kMedium, job({"aaaf", "aaaf"}, 2)},
    {"TwoRanksLatestOnly", Extent::kMedium, job({"aaaf", "aaaf"}, 1, true)},
    {"OneLeaves", Extent::kMedium, job({"aaaf", "aal"}, 2)},
    {"TheOtherLeaves", Extent::kMedium, job({"aal", "aaaf"}, 2)},
    {"AllLeave", Extent::kMedium, job({"aaa", "aa"}, 2)},
    {"AfterAFlush", Extent::kMedium, job({"afaf", "afaf"}, 2)},
    {"AModeChange", Extent::kMedium, job({"asaf", "aaof"}, 2)},
    {"ThreeRanks", Extent::kMedium, job({"af", "af", "af"}, 1)},
    {"ThreeRanksOneLeaves", Extent::kMedium, job({"aaf", "aaf", "al"}, 1)},
    {"ThreeRanksAllLeave", Extent::kMedium, job({"aa", "aa", "a"}, 2)},
    {"ThreeRanksAModeChange", Extent::kMedium, job({"asaf", "aaf", "aaf"}, 1)},
    {"ThreeRanksThreeRounds", Extent::kMedium, job({"aaaf", "aaaf", "aaaf"}, 1)},
    {"ThreeRanksWithRoomInTheRing", Extent::kLarge, job({"aaaf", "aaaf", "aaaf"}, 2)},
};

class Loss : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Each, Loss, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Loss, OfAnyRankAtAnyMomentIsToldToAll) {
  if (!wanted(GetParam().extent)) GTEST_SKIP() << "large: HVD_PARTIAL_EXPLORE=all, no sanitizer";
  Job job = GetParam().job;
  for (job.victim = 0; job.victim < static_cast<int>(job.programs.size()); ++job.victim) {
    std::printf("rank %d dies\n", job.victim);
    // The reduction is exact without a loss only; see World::urgent().
    Search search;
    search.reduced = job.programs.size() > 2;
    expect_sound(job, search);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hvd_partial

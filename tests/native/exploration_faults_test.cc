// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// The exploration has teeth: what is done wrong on purpose is found, and
// without it the same job is found to be right.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "exploration.h"

namespace hvd_partial {
namespace {

struct Planted {
  const char* name;
  Fault fault;
  const char* found_as;
  Job job;
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

Job job(std::vector<std::string> programs, ModeKind mode, int max_lag = 1) {
  Job job;
  job.programs = std::move(programs);
  job.mode.kind = mode;
  job.max_lag = max_lag;
  return job;
}

Job with_victim(Job job, int victim) {
  job.victim = victim;
  return job;
}

Job latest(Job job) {
  job.latest_only = true;
  job.reads_slowly = true;
  return job;
}

constexpr ModeKind kSync = ModeKind::kSync;
constexpr ModeKind kMajority = ModeKind::kMajority;
constexpr ModeKind kSolo = ModeKind::kSolo;

const std::vector<Planted> kPlanted{
    {"KeepsWhatItSent", Fault::kKeepsWhatItSent, "lies there", job({"aaf", "aaf"}, kSync)},
    {"ForgetsADeposit", Fault::kForgetsADeposit, "I1", job({"aaf", "aaf"}, kSolo)},
    {"IgnoresTheRing", Fault::kIgnoresTheRing, "I4", job({"aaaf", "af"}, kSolo)},
    {"TearsADeposit", Fault::kTearsADeposit, "torn", job({"aaf", "aaf"}, kSolo)},
    {"ActivatesOneModeEarly", Fault::kActivatesOneModeEarly, "I2: rank 1 has another mode",
     job({"aaaof", "aaaf"}, kSync)},
    {"ForgetsALeave", Fault::kForgetsALeave, "I1", job({"aaf", "aal"}, kSolo)},
    {"ForgetsACall", Fault::kForgetsACall, "I5", job({"aaf", "aaf"}, kSync)},
    {"ForgetsAnActivation", Fault::kForgetsAnActivation, "I5", job({"aaf", "aaf"}, kSync)},
    {"ForgetsTheMembers", Fault::kForgetsTheMembers, "I2: rank 0 has other ranks",
     job({"aaf", "al"}, kSync)},
    {"RepeatsAnActivation", Fault::kRepeatsAnActivation, "out of turn", job({"af", "af"}, kSync)},
    {"CountsACallTwice", Fault::kCountsACallTwice, "I3", job({"af", "af"}, kSync)},
    {"PublishesEarly", Fault::kPublishesEarly, "I2", job({"af", "af"}, kSync)},
    {"SkipsAResult", Fault::kSkipsAResult, "I2", job({"aaaf", "aaaf"}, kSync)},
    {"FlushTakesTooMuch", Fault::kFlushTakesTooMuch, "I2", job({"faf", "faf"}, kSolo)},
    {"FullWeights", Fault::kFullWeights, "weight", job({"aaf", "aaf"}, kSolo)},
    {"FreesWhatIsRead", Fault::kFreesWhatIsRead, "while rank", latest(job({"aaf", "aaf"}, kSolo))},
    {"KeepsTheOldest", Fault::kKeepsTheOldest, "I2: the ring", latest(job({"aaaf", "aaf"}, kSolo))},
    {"LossNotToldToOne", Fault::kLossNotToldToOne, "I7: rank 1 waits for ever",
     with_victim(job({"af", "af", "af"}, kMajority), 2)},
    {"LossOfRankZeroNotToldToOne", Fault::kLossNotToldToOne, "I7: rank 1 waits for ever",
     with_victim(job({"af", "af"}, kSolo), 0)},
    {"LossNotHeard", Fault::kLossNotHeard, "I7: rank 0 waits for ever",
     with_victim(job({"af", "af"}, kSync), 1)},
    {"LossNotHeardAndNotNeededForTheQuorum", Fault::kLossNotHeard, "I7: rank 0 waits for ever",
     with_victim(job({"af", "af", "af"}, kMajority), 1)},
    {"LossNamesAnother", Fault::kLossNamesAnother, "I7: a failure names rank 0",
     with_victim(job({"af", "af"}, kSync), 1)},
    {"GoesOnWithoutTheLost", Fault::kGoesOnWithoutTheLost, "I2: published before",
     with_victim(job({"aaf", "aaf"}, kSync), 1)},
    {"GoodbyeExcusesAll", Fault::kGoodbyeExcusesAll, "I7: rank 0 waits for ever",
     with_victim(job({"aaf", "aal"}, kSolo), 1)},
};

class PlantedFault : public ::testing::TestWithParam<Planted> {};

INSTANTIATE_TEST_SUITE_P(Each, PlantedFault, ::testing::ValuesIn(kPlanted),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PlantedFault, IsFound) {
  const Planted& planted = GetParam();
  // A fault may be one in the very order of events that the reduction relies
  // on: so all of them are looked at.
  Search all;
  all.reduced = false;
  Job job = planted.job;
  ASSERT_EQ(explore(job, all).broken, "") << "without the fault";
  job.fault = planted.fault;
  const Outcome outcome = explore(job, all);
  EXPECT_NE(headline(outcome.broken).find(planted.found_as), std::string::npos) << outcome.broken;
  std::printf("%s (%zu states)\n", headline(outcome.broken).c_str(), outcome.states);
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// Invariants I1 to I7 of docs/design.md over many schedules. What a failing
// seed prints has the command that runs it alone: with HVD_PARTIAL_SEED set,
// the tests of many schedules run that one only.

#include "simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace hvd_partial {
namespace {

// Under a sanitizer everything is ten times slower, and here is one thread
// only: what it could find, a few hundred schedules show as well.
#ifdef HVD_PARTIAL_SANITIZED
constexpr std::uint64_t kSchedulesOfShard = 20;
constexpr std::uint64_t kModeChangeSchedules = 50;
#else
constexpr std::uint64_t kSchedulesOfShard = 1000;
constexpr std::uint64_t kModeChangeSchedules = 1000;
#endif
constexpr int kShards = 20;

std::optional<std::uint64_t> seed_to_replay() {
  const char* seed = std::getenv("HVD_PARTIAL_SEED");
  if (seed == nullptr) return std::nullopt;
  return std::strtoull(seed, nullptr, 10);
}

// In parts, so that ctest runs several at a time.
class Schedules : public testing::TestWithParam<int> {};

TEST_P(Schedules, InvariantsHold) {
  const auto replayed = seed_to_replay();
  const std::uint64_t first = replayed.value_or(1 + GetParam() * kSchedulesOfShard);
  const std::uint64_t last = replayed.value_or(first + kSchedulesOfShard - 1);
  std::uint64_t rounds = 0, deposits = 0, crashes = 0, overtakings = 0, changes = 0;
  std::uint64_t made_without = 0, deferred = 0;
  int largest = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Scenario scenario = Scenario::draw(seed);
    scenario.replayed_by = "Seeds/Schedules.InvariantsHold/0";
    Simulation simulation(scenario);
    const std::string violation = simulation.run();
    if (!violation.empty()) FAIL() << violation;
    rounds += simulation.ledger().rounds();
    deposits += simulation.ledger().deposits();
    crashes += simulation.crashed() ? 1 : 0;
    overtakings += simulation.overtakings();
    changes += simulation.mode_changes();
    made_without += simulation.made_without();
    deferred += simulation.deferred();
    largest = std::max(largest, scenario.ranks);
  }
  std::printf(
      "%llu schedules to %d ranks: %llu rounds, %llu deposits, %llu deaths, %llu mode changes, "
      "%llu messages overtaken, %llu rounds made without a rank, %llu deferred\n",
      static_cast<unsigned long long>(last - first + 1), largest,
      static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(deposits),
      static_cast<unsigned long long>(crashes), static_cast<unsigned long long>(changes),
      static_cast<unsigned long long>(overtakings), static_cast<unsigned long long>(made_without),
      static_cast<unsigned long long>(deferred));
  if (replayed || kSchedulesOfShard < 1000) return;  // of few, chance decides
  EXPECT_GT(rounds, 8 * kSchedulesOfShard) << "the schedules do too little to show anything";
  EXPECT_GT(crashes, kSchedulesOfShard / 30);
  EXPECT_GT(changes, kSchedulesOfShard);
  EXPECT_GT(overtakings, kSchedulesOfShard);
  EXPECT_GT(deferred, kSchedulesOfShard / 20);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Schedules, testing::Range(0, kShards));

// Whoever asks for a mode, and whenever: it is in force from the same round on
// for all ranks. Compared here once more, without the ledger's help.
TEST(ModeChanges, ComeIntoForceAtTheSameRoundOnAllRanks) {
  const auto replayed = seed_to_replay();
  const std::uint64_t first = replayed.value_or(1);
  const std::uint64_t last = replayed.value_or(kModeChangeSchedules);
  std::uint64_t switches = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Scenario scenario = Scenario::draw(seed);
    scenario.replayed_by = "ModeChanges.ComeIntoForceAtTheSameRoundOnAllRanks";
    scenario.ranks = 2 + static_cast<int>(seed % 8);
    scenario.mode = {ModeKind::kSync};
    scenario.delays = {{DelaySource::Kind::kLogNormal, 0.05, 1}};
    scenario.latest_only = false;
    scenario.early_leaver = false;
    scenario.crash_rank = -1;
    scenario.steps = 10;
    scenario.mode_change_seconds = 0.05 * static_cast<double>(1 + seed % 4);
    Simulation simulation(scenario);
    const std::string violation = simulation.run();
    if (!violation.empty()) FAIL() << violation;
    const auto& modes = simulation.ledger().modes_of(0);
    for (int rank = 1; rank < scenario.ranks; ++rank) {
      ASSERT_EQ(simulation.ledger().modes_of(rank), modes)
          << "rank " << rank << " differs from rank 0; replay: " << scenario.replay_command();
    }
    for (std::size_t i = 1; i < modes.size(); ++i) {
      switches += modes[i].second != modes[i - 1].second ? 1 : 0;
    }
  }
  std::printf("%llu schedules, %llu switches\n", static_cast<unsigned long long>(last - first + 1),
              static_cast<unsigned long long>(switches));
  if (!replayed) {
    EXPECT_GT(switches, 5 * kModeChangeSchedules);
  }
}

// What every rank decides alike is in force at the very next round, however
// late their steps and their messages are.
TEST(ModeChanges, DecisionsAreInForceAtTheNextRoundOnAllRanks) {
  const auto replayed = seed_to_replay();
  const std::uint64_t first = replayed.value_or(1);
  const std::uint64_t last = replayed.value_or(kModeChangeSchedules);
  std::uint64_t rounds = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Scenario scenario = Scenario::draw(seed);
    scenario.replayed_by = "ModeChanges.DecisionsAreInForceAtTheNextRoundOnAllRanks";
    scenario.mode = {ModeKind::kSync};
    scenario.decisions = true;
    scenario.mode_change_seconds = 0;
    scenario.exclusions = scenario.early_leaver = scenario.latest_only = false;
    scenario.crash_rank = -1;
    scenario.ranks = 2 + static_cast<int>(seed % 8);
    scenario.delays = {{DelaySource::Kind::kLogNormal, 0.05, 1}};
    // With one epoch nobody flushes before the end: a rank that does counts no more.
    scenario.epochs = 1;
    Simulation simulation(scenario);
    const std::string violation = simulation.run();
    if (!violation.empty()) FAIL() << violation;
    rounds += simulation.ledger().rounds();
  }
  if (!replayed) {
    EXPECT_GT(rounds, 3 * kModeChangeSchedules);
  }
}

// I6: in solo a call takes the time of the communication, however long the
// others compute. Messages take at most 1 ms here, computations up to 5 s.
TEST(Simulation, SoloNeverWaitsForAnotherRanksThread) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    Scenario scenario;
    scenario.seed = 100 + ranks;
    scenario.ranks = ranks;
    scenario.mode = {ModeKind::kSolo};
    scenario.max_lag = 1000;  // a full ring would be a reason to wait
    scenario.epochs = 1;
    scenario.steps = 12;
    scenario.delays = {{DelaySource::Kind::kOneRandom, 5, 0}};
    Simulation simulation(scenario);
    ASSERT_EQ(simulation.run(), "");
    // To the coordinator and back, and then every step of the exchange (of
    // 2 + log2(8) steps, there and back); all of it for the round in flight
    // and for the one asked for.
    const double hops = 2 * (2 + 2 * 5);
    EXPECT_LT(simulation.largest_blocked_seconds(), hops * scenario.message_seconds)
        << ranks << " ranks";
  }
}

// The same schedule in sync mode does wait: the check above can fail.
TEST(Simulation, SyncWaitsForTheLast) {
  Scenario scenario;
  scenario.seed = 104;
  scenario.ranks = 4;
  scenario.mode = {ModeKind::kSync};
  scenario.epochs = 1;
  scenario.steps = 12;
  scenario.delays = {{DelaySource::Kind::kOneRandom, 5, 0}};
  Simulation simulation(scenario);
  ASSERT_EQ(simulation.run(), "");
  EXPECT_GT(simulation.largest_blocked_seconds(), 0.5);
}

// A process that stops is left out of rounds that can do without it, and gets
// what it has missed when it is back; nobody else waits, but for a full ring.
class Silence : public testing::TestWithParam<Mode> {
 protected:
  static Scenario scenario(std::uint64_t seed) {
    Scenario scenario;
    scenario.seed = seed;
    scenario.ranks = 4;
    scenario.mode = GetParam();
    scenario.epochs = 1;
    scenario.steps = 30;
    scenario.max_lag = 8;
    scenario.delays = {{DelaySource::Kind::kLogNormal, 0.02, 1}};
    scenario.grace_seconds = 0;
    scenario.stop_seconds = 2;
    scenario.leave_out_seconds = 0.04;
    scenario.replayed_by = "Modes/Silence.*";
    return scenario;
  }
};

TEST_P(Silence, RoundsGoOnWhereTheModeCanDoWithout) {
  const auto replayed = seed_to_replay();
  const std::uint64_t first = replayed.value_or(1);
  const std::uint64_t last = replayed.value_or(kModeChangeSchedules / 5);
  std::uint64_t made_without = 0, deferred = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Simulation simulation(scenario(seed));
    ASSERT_EQ(simulation.run(), "");
    made_without += simulation.made_without();
    deferred += simulation.deferred();
  }
  std::printf("%llu schedules, %llu rounds made without a rank, %llu deferred\n",
              static_cast<unsigned long long>(last - first + 1),
              static_cast<unsigned long long>(made_without),
              static_cast<unsigned long long>(deferred));
  if (replayed) return;
  if (GetParam().kind == ModeKind::kSync) {
    EXPECT_EQ(made_without + deferred, 0u);
  } else {
    EXPECT_GT(made_without, last / 4);
    EXPECT_GT(deferred, last / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Silence,
                         testing::Values(Mode{ModeKind::kSync}, Mode{ModeKind::kMajority},
                                         Mode{ModeKind::kSolo}, Mode{ModeKind::kQuorum, 3},
                                         Mode{ModeKind::kDesignated, 0, 7}),
                         [](const auto& info) {
                           std::string name = to_string(info.param);
                           return name.substr(0, name.find('('));
                         });

struct Mistake {
  Plant plant;
  const char* found;

  friend void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.found; }
};

Scenario planted(Plant plant) {
  Scenario scenario;
  scenario.seed = 12;
  scenario.ranks = 4;
  scenario.mode = {ModeKind::kSync};
  scenario.replayed_by = "Simulation.SyncWaitsForTheLast";
  scenario.plant = plant;
  if (plant == Plant::kDeafSurvivor || plant == Plant::kOtherCulprit) {
    scenario.crash_rank = 2;
    scenario.crash_seconds = 0.35;
  }
  return scenario;
}

// Whether the log has a line of time, rank and event, such as
// "  0.250000 s  rank  1  calls allreduce at step 2".
bool shows_a_call(const std::string& report) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    double seconds = -1;
    int rank = -1, step = -1;
    if (std::sscanf(line.c_str(), " %lf s rank %d calls allreduce at step %d", &seconds, &rank,
                    &step) == 3) {
      return seconds >= 0 && rank >= 0 && rank < 4 && step >= 0;
    }
  }
  return false;
}

class PlantedMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(PlantedMistakes, AreFoundAndReportedWithSeedCommandAndLog) {
  Simulation simulation(planted(GetParam().plant));
  const std::string report = simulation.run();
  EXPECT_EQ(report.rfind(GetParam().found, 0), 0u) << report;
  EXPECT_NE(report.find("of seed 12: 4 ranks, sync, replay"), std::string::npos) << report;
  const std::size_t command = report.find("\n  replay: HVD_PARTIAL_SEED=12 ");
  ASSERT_NE(command, std::string::npos) << report;
  const std::string line = report.substr(command, report.find('\n', command + 1) - command);
  EXPECT_NE(line.find("simulation_test --gtest_filter='Simulation.SyncWaits"), std::string::npos)
      << report;
  EXPECT_TRUE(shows_a_call(report)) << report;
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, PlantedMistakes,
    testing::Values(Mistake{Plant::kOtherSum, "I2: rank 1 sees another round 1"},
                    Mistake{Plant::kOtherMode, "I2: "}, Mistake{Plant::kForgottenDeposit, "I1: "},
                    Mistake{Plant::kShortQuorum, "I3: round 1 in mode sync has 3 contributors"},
                    Mistake{Plant::kLongLag, "I4: rank 1 lags by "},
                    Mistake{Plant::kSleeper, "I5: nothing will ever happen again"},
                    Mistake{Plant::kDeafSurvivor, "I7: "},
                    Mistake{Plant::kOtherCulprit, "I7: rank "}));

// Without a mistake the same scenarios pass.
TEST(Simulation, NoMistakeIsFoundWhereThereIsNone) {
  EXPECT_EQ(Simulation(planted(Plant::kNone)).run(), "");
  Scenario scenario = planted(Plant::kNone);
  scenario.crash_rank = 2;
  scenario.crash_seconds = 0.35;
  Simulation simulation(scenario);
  EXPECT_EQ(simulation.run(), "");
  EXPECT_TRUE(simulation.crashed());
}

}  // namespace
}  // namespace hvd_partial

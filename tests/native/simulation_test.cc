// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// Invariants I1 to I6 of docs/design.md over many schedules. A failing seed
// is named in the message; HVD_PARTIAL_SEED=<seed> runs that one alone.

#include "simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace hvd_partial {
namespace {

// Under a sanitizer everything is ten times slower, and here is one thread
// only: what it could find, a few hundred schedules show as well.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSchedules = 300;
constexpr std::uint64_t kSwitchSchedules = 100;
#else
constexpr std::uint64_t kSchedules = 3000;
constexpr std::uint64_t kSwitchSchedules = 1000;
#endif

TEST(Simulation, InvariantsHoldInEverySchedule) {
  std::uint64_t first = 1, last = kSchedules;
  if (const char* seed = std::getenv("HVD_PARTIAL_SEED"))
    first = last = std::strtoull(seed, nullptr, 10);
  std::uint64_t rounds = 0, deposits = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Simulation simulation(Scenario::draw(seed));
    ASSERT_EQ(simulation.run(), "") << "replay: HVD_PARTIAL_SEED=" << seed << " simulation_test";
    rounds += simulation.rounds();
    deposits += simulation.deposits();
  }
  if (first != last) {
    EXPECT_GT(rounds, 10 * kSchedules) << "the schedules do too little to show anything";
  }
  std::printf("%llu schedules, %llu rounds, %llu deposits\n",
              static_cast<unsigned long long>(last - first + 1),
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(deposits));
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
    scenario.delay_seconds = 5;
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
  scenario.delay_seconds = 5;
  Simulation simulation(scenario);
  ASSERT_EQ(simulation.run(), "");
  EXPECT_GT(simulation.largest_blocked_seconds(), 0.5);
}

// All ranks switch at the same round, and at the next one, however late their
// steps and their messages are: every rank decides after each round.
TEST(Simulation, DecisionsAreInForceAtTheNextRoundOnAllRanks) {
  std::uint64_t rounds = 0;
  for (std::uint64_t seed = 1; seed <= kSwitchSchedules; ++seed) {
    Scenario scenario = Scenario::draw(seed);
    scenario.mode = {ModeKind::kSync};
    scenario.decisions = true;
    scenario.mode_changes = scenario.exclusions = scenario.early_leaver = false;
    scenario.latest_only = false;
    // With one epoch nobody flushes before the end: a rank that does counts no more.
    scenario.epochs = 1;
    Simulation simulation(scenario);
    ASSERT_EQ(simulation.run(), "") << "seed " << seed;
    rounds += simulation.rounds();
  }
  EXPECT_GT(rounds, 3 * kSwitchSchedules);
}

}  // namespace
}  // namespace hvd_partial

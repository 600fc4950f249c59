// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_SCENARIO_H_
#define HVD_PARTIAL_TESTS_SCENARIO_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "protocol/mode.h"
#include "simulation/trace.h"

namespace hvd_partial {

// A mistake in what the checks are given, to see that they find it.
enum class Plant {
  kNone,
  kOtherSum,          // one rank sees another sum
  kOtherMode,         // one rank sees a round in another mode
  kForgottenDeposit,  // the ledger misses one
  kShortQuorum,       // a round has a contributor less than it says
  kLongLag,           // a rank says that it lags by more
  kSleeper,           // a rank stops calling, and nobody is told
  kDeafSurvivor,      // a rank hears nothing any more after another has died
  kOtherCulprit,      // the rank that died is not the one that is expected
};

// What one simulated job does; everything else is drawn from the seed.
struct Scenario {
  std::uint64_t seed = 0;
  int ranks = 2;
  Mode mode;
  bool latest_only = false;
  bool weighted = false;      // halve the weight for each round late
  bool early_leaver = false;  // one rank leaves in the middle
  bool exclusions = false;    // ranks are excluded and admitted at random
  // Every rank decides after each round for a mode that waits for everybody,
  // a function of seed and round, as a policy would: in force from the next
  // round on.
  bool decisions = false;
  int max_lag = 8;
  int epochs = 2;  // a flush ends each
  int steps = 6;   // of a rank and an epoch, give or take
  double step_seconds = 0.1;
  std::vector<DelaySource> delays;  // of steps
  double message_seconds = 0.001;   // largest delay of a message
  double straggler_seconds = 0;     // ... of one message in sixteen, which others overtake
  double grace_seconds = -1;
  double mode_change_seconds = 0;  // mean time between changes, by any rank; 0: none
  double stop_seconds = 0;         // longest time that a process is stopped; 0: never
  double leave_out_seconds = 0;    // those that do not answer for so long are; 0: nobody
  int crash_rank = -1;             // dies
  double crash_seconds = 0;        // ... then, if the job is not over
  double notice_seconds = 0;       // ... and is missed so much later
  Plant plant = Plant::kNone;
  std::string replayed_by;  // GoogleTest's filter of the test that runs this seed again

  static Scenario draw(std::uint64_t seed);
  Mode decided_after(std::uint64_t round) const;
  std::string describe() const;
  // The one command that runs it again.
  std::string replay_command() const;
  // From one rank's sending to another's receiving, at most.
  double longest_message_seconds() const;
};

Mode draw_mode(std::mt19937_64* random, int ranks);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_SCENARIO_H_

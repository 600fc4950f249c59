// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_SIMULATION_H_
#define HVD_PARTIAL_TESTS_SIMULATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/channel.h"
#include "engine/progress.h"
#include "transport/in_process_transport.h"

namespace hvd_partial {

class SimulatedClock final : public Clock {
 public:
  double now() const override { return now_; }
  void set(double now) { now_ = now; }

 private:
  double now_ = 0;
};

// What one simulated job does; everything else is drawn from the seed.
struct Scenario {
  std::uint64_t seed = 0;
  int ranks = 2;
  Mode mode;
  bool mode_changes = false;
  // Every rank decides after each round for a mode that waits for everybody,
  // a function of seed and round, as a policy would: in force from the next
  // round on.
  bool decisions = false;
  bool exclusions = false;  // ranks are excluded and admitted at random
  bool latest_only = false;
  bool weighted = false;      // halve the weight for each round late
  bool early_leaver = false;  // one rank leaves in the middle
  int max_lag = 8;
  int epochs = 2;  // a flush ends each
  int steps = 6;   // of a rank and an epoch, give or take
  double step_seconds = 0.1;
  double delay_seconds = 0.3;      // largest injected delay of a step
  double message_seconds = 0.001;  // largest delay of a message
  double grace_seconds = -1;

  Mode decided_after(std::uint64_t round) const;
  static Scenario draw(std::uint64_t seed);
  std::string describe() const;
};

// Runs the real engine, without its threads, on simulated time: messages
// arrive when the seed says, computations end when the seed says, and after
// every event the invariants of docs/design.md are checked.
class Simulation {
 public:
  explicit Simulation(const Scenario& scenario);
  ~Simulation();

  // Empty if every invariant held; else what was violated, and when.
  std::string run();

  std::uint64_t rounds() const { return rounds_.size(); }
  std::uint64_t deposits() const { return deposits_; }
  double largest_blocked_seconds() const { return largest_blocked_; }

 private:
  struct Rank;
  struct Deposit {
    std::uint64_t applied = 0;  // rounds that the weights had seen
    bool full_weight = false;
    std::vector<double> values;
  };
  struct RoundRecord {
    std::vector<double> values;
    double weight = 0;
    std::vector<std::int32_t> contributions_of;
    Mode mode;
  };

  void violate(const std::string& what);
  bool step_engines();
  bool act(Rank* rank);
  void begin_step(Rank* rank);
  void deposit(Rank* rank);
  bool leaver(const Rank& rank) const;  // leaves before the others
  void finish(Rank* rank);
  bool collect(Rank* rank);
  void take_result(Rank* rank);
  void check_round(const Rank& rank, const RoundHeader& header, const std::vector<double>& values);
  void check_sums();
  double next_event() const;
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  const Scenario scenario_;
  std::mt19937_64 random_;
  SimulatedClock clock_;
  InProcessFabric fabric_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::uint64_t, RoundRecord> rounds_;
  std::uint64_t deposits_ = 0;
  double first_flush_ = kNever;  // from then on ranks may be inactive
  double largest_blocked_ = 0;
  std::string violation_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_SIMULATION_H_

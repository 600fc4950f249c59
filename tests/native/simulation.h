// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_SIMULATION_H_
#define HVD_PARTIAL_TESTS_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/channel.h"
#include "engine/progress.h"
#include "event_log.h"
#include "ledger.h"
#include "scenario.h"
#include "simulation/trace.h"
#include "transport/in_process_transport.h"

namespace hvd_partial {

class SimulatedClock final : public Clock {
 public:
  double now() const override { return now_; }
  void set(double now) { now_ = now; }

 private:
  double now_ = 0;
};

// Runs the real engine, without its threads, on simulated time: messages
// arrive when the seed says, computations end when the seed says, processes
// stop and die, and after every event the invariants of docs/design.md are
// checked.
class Simulation {
 public:
  explicit Simulation(const Scenario& scenario);
  ~Simulation();

  // Empty if every invariant held; else what was violated, when, the command
  // that runs it again, and the last events.
  std::string run();

  const Ledger& ledger() const { return ledger_; }
  double largest_blocked_seconds() const { return largest_blocked_; }
  bool crashed() const { return crashed_; }
  std::uint64_t mode_changes() const { return mode_changes_; }
  // Rounds of a rank that were made while it did not answer; that were deferred.
  std::uint64_t made_without() const { return made_without_; }
  std::uint64_t deferred() const { return deferred_; }
  // Messages that arrived before one which another rank had sent earlier.
  std::uint64_t overtakings() const { return overtakings_; }

 private:
  struct Rank {
    enum class Doing {
      kComputing,
      kWaiting,
      kApplying,
      kFlushing,
      kLeaving,
      kDone,
      kFailed,  // has learned that the job is lost
      kDead,
    };
    static constexpr const char* kNames[] = {"computes", "waits", "applies", "flushes",
                                             "leaves",   "done",  "failed",  "dead"};

    int rank = 0;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Progress> progress;
    std::shared_ptr<Channel> channel;
    Doing doing = Doing::kComputing;
    bool due = true;  // something may move now
    bool flush_begun = false;
    bool left = false;
    double until = 0;          // of kComputing, kApplying and kLeaving
    double stopped_until = 0;  // the whole process
    double called_at = 0;      // of kWaiting
    int epoch = 0;
    int step = 0;
    std::uint64_t all_steps = 0;
    int steps_of_epoch = 0;
    int to_apply = 0;
    int results = 0;
    std::uint64_t next_round = 0;  // all rounds before it are applied
  };
  // The rank that a planted mistake happens to.
  static constexpr int kPlantRank = 1;
  enum class Chore { kChangeMode, kStop, kCrash };

  void violate(const std::string& what);
  void log(int rank, const char* what);
  void log(EventLog::Event event);
  double message_delay(int from, int to, bool control);

  // Looks at a rank at that time.
  void wake(int rank, double time);
  void open(Rank* rank);
  bool turn(Rank* rank);  // of engine and user; true if something moved
  bool act(Rank* rank);
  void begin_step(Rank* rank);
  void deposit(Rank* rank);
  bool leaver(const Rank& rank) const;  // leaves before the others
  void finish(Rank* rank);
  bool collect(Rank* rank);
  void take_result(Rank* rank);
  void meet_failure(Rank* rank);
  void schedule(Chore chore);
  void do_chores();
  void crash();
  bool over() const;
  double next_event() const;
  void end();
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  const Scenario scenario_;
  const Trace trace_;
  std::mt19937_64 random_;
  SimulatedClock clock_;
  InProcessFabric fabric_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  using Wake = std::pair<double, int>;  // time, rank
  std::priority_queue<Wake, std::vector<Wake>, std::greater<Wake>> wakes_;
  std::vector<std::pair<double, Chore>> chores_;
  Ledger ledger_;
  EventLog log_;
  double first_flush_ = kNever;  // from then on ranks may be inactive
  double largest_blocked_ = 0;
  bool crashed_ = false;
  std::uint64_t mode_changes_ = 0;
  struct Arrival {
    double time = 0;
    int from = -1;
  };
  std::vector<Arrival> latest_arrival_;  // by receiver
  std::uint64_t overtakings_ = 0;
  std::uint64_t made_without_ = 0;
  std::uint64_t deferred_ = 0;
  std::string violation_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_SIMULATION_H_

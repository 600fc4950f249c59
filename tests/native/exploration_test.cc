// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// All interleavings of a small job: the real Coordinator and the real Members
// between queues of messages, every event at every moment at which it can
// happen, each state looked at once. Ghost state beside them knows which
// contributions went where, and checks the invariants of docs/design.md.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/coordinator.h"
#include "protocol/member.h"

namespace hvd_partial {
namespace {

// A wrong turn that the world takes, to see that the checks have teeth.
enum class Fault {
  kNone,
  kKeepsWhatItSent,        // the send buffer is not emptied by a snapshot
  kForgetsADeposit,        // a late deposit replaces what lies there
  kIgnoresTheRing,         // joins though the ring is full
  kTearsADeposit,          // joins while a contribution is being copied
  kActivatesOneModeEarly,  // one rank learns of a change a round too soon
  kForgetsALeave,          // the coordinator never hears of a departure
  kForgetsACall,           // a message is lost
  kCountsACallTwice,       // a call stands for two ranks
  kPublishesEarly,         // before all have joined
  kSkipsAResult,           // one is released unseen
  kFlushTakesTooMuch,      // results of rounds after the flush
  kFullWeights,            // lateness is ignored
};

// What a rank's program does, a letter each.
//   a  allreduce      f  flush      l  leave
//   s  set_mode(sync)        o  set_mode(solo)
struct Job {
  std::vector<std::string> programs;
  Mode mode;
  int max_lag = 2;
  double grace = 0;
  Fault fault = Fault::kNone;
};

const std::vector<double> kWeights{1.0, 0.5, 0.25, 0.125, 0.0625};

// What a round is, whoever looks at it.
struct Round {
  Mode mode;
  bool flush = false;
  std::uint64_t members = 0;  // a bit each
  std::uint64_t joined = 0;
  std::vector<int> from;  // contributions of each rank
};

struct RankState {
  explicit RankState(const Member::Options& options) : member(options) {}

  Member member;
  std::size_t next = 0;  // in its program
  enum class Phase { kIdle, kDepositing, kWaiting, kFlushing } phase = Phase::kIdle;
  bool opened = false;
  bool gone = false;
  std::vector<Message> up;  // the oldest first
  std::vector<Message> down;
  std::uint64_t coming_members = 0;
  std::vector<std::uint64_t> activated_members;  // of rounds not joined yet
  std::optional<Snapshot> joined;                // and not published
  // A contribution that is not in a round yet: its weights had seen the rounds
  // before this one.
  std::vector<std::uint64_t> held;
  std::uint64_t depositing = 0;  // the same, of the one that is being copied
  std::vector<std::uint64_t> ring;
  std::uint64_t applied = 0;  // rounds before it, null rounds passed over
  int deposits = 0;
  int seen = 0;    // contributions in the results it has applied
  int asked = -1;  // the round that a Call of this rank waits for
  // What the coordinator has heard of it.
  bool flushing = false;
  bool departed = false;
};

class World {
 public:
  explicit World(const Job& job) : job_(&job), coordinator_(static_cast<int>(job.programs.size())) {
    Member::Options options;
    options.max_lag = job.max_lag;
    options.staleness_weights = kWeights;
    options.mode = job.mode;
    for (std::size_t i = 0; i < job.programs.size(); ++i) ranks_.emplace_back(options);
  }

  struct Event {
    const char* name;
    int rank;
    void (World::*happen)(int rank);
  };

  // Everything that can happen now.
  std::vector<Event> events() const {
    std::vector<Event> all;
    const int size = static_cast<int>(ranks_.size());
    for (int i = 0; i < size; ++i) {
      const RankState& rank = ranks_[i];
      if (may_act(rank)) all.push_back({"acts", i, &World::act});
      if (!rank.up.empty()) all.push_back({"is heard", i, &World::deliver_up});
      if (!rank.down.empty()) all.push_back({"hears", i, &World::deliver_down});
      if (may_join(rank)) all.push_back({"joins", i, &World::join});
      if (may_publish(i)) all.push_back({"publishes", i, &World::publish});
    }
    if (coordinator_.next_deadline() != kNever) {
      all.push_back({"the grace ends for", -1, &World::end_grace});
    }
    return all;
  }

  // Not empty: what is wrong.
  const std::string& broken() const { return broken_; }

  // Where nothing can happen any more.
  void check_end() {
    // What a rank holds when it leaves goes into the next round; if everybody
    // leaves there is none, and nobody to apply it.
    const bool somebody_stays =
        std::any_of(job_->programs.begin(), job_->programs.end(),
                    [](const std::string& program) { return program.back() == 'f'; });
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const RankState& rank = ranks_[i];
      expect(rank.next == program(static_cast<int>(i)).size() && rank.phase == Phase::kIdle,
             "I5: rank " + std::to_string(i) + " waits for ever");
      expect(!somebody_stays || (rank.held.empty() && rank.member.held_contributions() == 0),
             "I1: a contribution of rank " + std::to_string(i) + " is in no round");
    }
    std::vector<int> found(ranks_.size(), 0);
    for (const auto& [number, round] : rounds_) {
      for (std::size_t i = 0; i < ranks_.size(); ++i) found[i] += round.from[i];
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      expect(found[i] + static_cast<int>(ranks_[i].held.size()) == ranks_[i].deposits,
             "I1: " + std::to_string(ranks_[i].deposits) + " contributions of rank " +
                 std::to_string(i) + ", " + std::to_string(found[i]) + " in rounds");
    }
  }

  std::string key() const {
    std::ostringstream text;
    text << coordinator_.describe();
    for (const RankState& rank : ranks_) {
      text << '\n'
           << rank.member.describe() << '|' << rank.next << static_cast<int>(rank.phase)
           << rank.opened << rank.gone << ' ' << rank.coming_members << ' ' << rank.applied << ' '
           << rank.asked << ' ' << rank.deposits << ' ' << rank.seen << ' ' << rank.depositing
           << '|';
      for (const auto bits : rank.activated_members) text << bits << ' ';
      for (const auto& held : rank.held) text << 'c' << held;
      for (const auto& message : rank.up) text << '^' << text_of(message);
      for (const auto& message : rank.down) text << 'v' << text_of(message);
    }
    for (const auto& [number, round] : rounds_) {
      text << '\n' << number << to_string(round.mode) << round.flush << round.members << ' ';
      text << round.joined;
      for (const int count : round.from) text << ',' << count;
    }
    return text.str();
  }

 private:
  using Phase = RankState::Phase;

  const std::string& program(int rank) const {
    return job_->programs[static_cast<std::size_t>(rank)];
  }
  bool fault(Fault which) const { return job_->fault == which; }

  void expect(bool holds, const std::string& what) {
    if (!holds && broken_.empty()) broken_ = what;
  }

  bool may_act(const RankState& rank) const {
    switch (rank.phase) {
      case Phase::kIdle:
        return !rank.gone;
      case Phase::kDepositing:
        return true;
      case Phase::kWaiting:
      case Phase::kFlushing:
        return rank.member.ready();
    }
    return false;
  }

  void act(int index) {
    RankState& rank = ranks_[index];
    if (!rank.opened) {
      rank.opened = true;
      rank.up.push_back(OpenChannel{"g", "", job_->mode, job_->grace});
      return;
    }
    if (rank.phase == Phase::kDepositing) return end_deposit(&rank);
    if (rank.phase != Phase::kIdle) return take(&rank);
    if (rank.next == program(index).size()) {
      rank.gone = true;
      if (!rank.member.left()) leave(&rank);
      rank.up.push_back(Goodbye{});
      return;
    }
    switch (program(index)[rank.next]) {
      case 'a':
        begin_deposit(&rank);
        break;
      case 'f':
        rank.member.begin_flush();
        rank.up.push_back(Flush{});
        rank.phase = Phase::kFlushing;
        break;
      case 'l':
        leave(&rank);
        ++rank.next;
        break;
      case 's':
      case 'o': {
        SetMode message;
        message.channel = 0;
        message.mode.kind = program(index)[rank.next] == 's' ? ModeKind::kSync : ModeKind::kSolo;
        rank.up.push_back(message);
        ++rank.next;
        break;
      }
    }
  }

  void begin_deposit(RankState* rank) {
    rank->phase = Phase::kDepositing;
    const Member::Deposit deposit = rank->member.begin_deposit();
    expect(deposit.accumulate == !rank->held.empty(), "a deposit does not know what lies there");
    rank->depositing = rank->applied;
  }

  void end_deposit(RankState* rank) {
    if (fault(Fault::kForgetsADeposit)) rank->held.clear();
    rank->held.push_back(std::exchange(rank->depositing, 0));
    ++rank->deposits;
    const Call call = rank->member.end_deposit(false);
    if (call.waiting) rank->asked = static_cast<int>(call.round);
    rank->phase = Phase::kWaiting;
    const bool lost = fault(Fault::kForgetsACall) && rank == &ranks_[0] && rank->deposits == 2;
    if (!lost) rank->up.push_back(call);
    if (fault(Fault::kCountsACallTwice) && rank == &ranks_[0]) ranks_[1].up.push_back(call);
  }

  void leave(RankState* rank) {
    rank->ring.clear();
    Leave message;
    message.holds_contribution = rank->member.leave();
    if (!fault(Fault::kForgetsALeave)) rank->up.push_back(message);
  }

  void take(RankState* rank) {
    int count = rank->member.takeable();
    if (fault(Fault::kFlushTakesTooMuch)) count = rank->member.results();
    rank->member.pin();
    for (int i = 0; i < count; ++i) {
      const std::uint64_t round = rank->ring.front();
      rank->ring.erase(rank->ring.begin());
      if (fault(Fault::kSkipsAResult) && rank == &ranks_[1] && round == 1) continue;
      // What lies between was without contributions, or came before.
      expect(round >= rank->applied, "I2: a result was applied twice");
      for (std::uint64_t between = rank->applied; between < round; ++between) {
        expect(total(between) == 0, "I2: a result was passed over");
      }
      rank->applied = round + 1;
      rank->seen += total(round);
    }
    rank->member.release(count);
    expect(rank->ring.size() == static_cast<std::size_t>(rank->member.results()),
           "the ring is out of step");
    if (rank->ring.empty()) rank->applied = std::max(rank->applied, rank->member.published());
    const bool flushed = rank->member.flush_ended() && rank->member.takeable() == 0;
    if (rank->phase == Phase::kFlushing) {
      if (!flushed) return;
      // All end their flush at the same round.
      expect(stands_at_flush(*rank), "I2: a flush ended out of step");
    }
    rank->asked = -1;
    rank->phase = Phase::kIdle;
    ++rank->next;
  }

  // Everything before the end of the flush has been applied, and nothing after it.
  bool stands_at_flush(const RankState& rank) const {
    int before = 0;
    for (const auto& [number, round] : rounds_) {
      if (number < flush_end_) before += total(number);
      if (total(number) > 0 && (number < flush_end_) != (number < rank.applied)) return false;
    }
    return rank.seen == before;
  }

  int total(std::uint64_t number) const {
    const auto found = rounds_.find(number);
    if (found == rounds_.end()) return 0;
    int sum = 0;
    for (const int count : found->second.from) sum += count;
    return sum;
  }

  void route(const std::vector<Coordinator::Outgoing>& out) {
    for (const auto& outgoing : out) {
      if (const auto* m = std::get_if<Activate>(&outgoing.message)) note_activation(*m);
      if (std::holds_alternative<StillTraining>(outgoing.message)) continue;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        if (outgoing.to != Coordinator::kEverybody && outgoing.to != static_cast<int>(i)) continue;
        Message message = outgoing.message;
        auto* activate = std::get_if<Activate>(&message);
        if (activate != nullptr && fault(Fault::kActivatesOneModeEarly) && i == 1 &&
            activate->round == 1) {
          activate->mode.kind = ModeKind::kAsync;
        }
        ranks_[i].down.push_back(std::move(message));
      }
    }
  }

  // Enough ranks wait for a round that starts, by what they said.
  void note_activation(const Activate& message) {
    if (rounds_.count(message.round) > 0) return;
    Round& round = rounds_[message.round];
    round.mode = message.mode;
    round.flush = message.flush;
    round.from.assign(ranks_.size(), 0);
    if (message.flush) {
      flush_end_ = message.round + 1;
      for (RankState& rank : ranks_) rank.flushing = false;
      return;
    }
    int active = 0;
    int waiting = 0;
    for (const RankState& rank : ranks_) {
      const bool counts = !rank.flushing && !rank.departed;
      active += counts;
      waiting += counts && rank.asked == static_cast<int>(message.round);
    }
    const int required =
        std::min(required_ranks(message.mode, static_cast<int>(ranks_.size())), active);
    expect(waiting >= required, "I3: round " + std::to_string(message.round) + " started with " +
                                    std::to_string(waiting) + " waiting of " +
                                    std::to_string(required));
  }

  void deliver_up(int index) {
    RankState& rank = ranks_[index];
    const Message message = std::move(rank.up.front());
    rank.up.erase(rank.up.begin());
    rank.flushing |= std::holds_alternative<Flush>(message);
    rank.departed |= std::holds_alternative<Leave>(message);
    std::vector<Coordinator::Outgoing> out;
    coordinator_.handle(index, message, 0.0, &out);
    route(out);
  }

  void deliver_down(int index) {
    RankState& rank = ranks_[index];
    const Message message = std::move(rank.down.front());
    rank.down.erase(rank.down.begin());
    if (const auto* m = std::get_if<Members>(&message)) {
      rank.coming_members = m->bits.at(0);
    } else if (const auto* m = std::get_if<Activate>(&message)) {
      expect(rank.member.on_activate(*m), "I2: a round was activated out of turn");
      rank.activated_members.push_back(rank.coming_members);
    }
  }

  bool may_join(const RankState& rank) const {
    if (rank.joined.has_value() || rank.activated_members.empty()) return false;
    if (rank.member.can_join()) return true;
    if (fault(Fault::kIgnoresTheRing)) return !rank.member.depositing();
    return fault(Fault::kTearsADeposit) && rank.member.depositing();
  }

  void join(int index) {
    RankState& rank = ranks_[index];
    const bool torn = rank.member.depositing();
    const Snapshot own = rank.member.join();
    Round& round = rounds_[own.round];
    const std::uint64_t members = rank.activated_members.front();
    rank.activated_members.erase(rank.activated_members.begin());
    expect(!torn, "a contribution was torn");
    expect(round.mode == own.mode && round.flush == own.flush, "I2: rank " + std::to_string(index) +
                                                                   " has another mode in round " +
                                                                   std::to_string(own.round));
    expect(round.members == 0 || round.members == members, "I2: other ranks in the same round");
    round.members = members;
    expect((members >> index & 1) != 0, "I2: a rank takes part that is not a member");
    expect((round.joined >> index & 1) == 0, "I2: a rank joins a round twice");
    round.joined |= std::uint64_t{1} << index;
    expect(own.contributions == static_cast<int>(rank.held.size()),
           "I1: a snapshot has not what was deposited");
    double weight = 0;
    for (const auto& held : rank.held) {
      const std::uint64_t late = own.round - held;
      expect(own.round >= held, "I1: a contribution in a round before it");
      weight += full_weights(own.mode) || fault(Fault::kFullWeights)
                    ? 1.0
                    : kWeights[std::min<std::size_t>(late, kWeights.size() - 1)];
    }
    if (job_->mode.kind != ModeKind::kAsync) {
      expect(own.weight == weight, "a weight is not that of its lateness");
    }
    round.from[index] += own.contributions;
    if (!fault(Fault::kKeepsWhatItSent)) rank.held.clear();
    rank.joined = own;
  }

  bool may_publish(int index) const {
    const RankState& rank = ranks_[index];
    if (!rank.joined.has_value()) return false;
    const Round& round = rounds_.at(rank.joined->round);
    return round.joined == round.members || fault(Fault::kPublishesEarly);
  }

  void publish(int index) {
    RankState& rank = ranks_[index];
    const Snapshot own = *rank.joined;
    const Round& round = rounds_[own.round];
    expect(round.joined == round.members, "I2: published before all have joined");
    rank.joined.reset();
    if (rank.member.publish(own, total(own.round))) rank.ring.push_back(own.round);
    if (rank.ring.empty()) rank.applied = rank.member.published();
    expect(rank.member.lag() <= job_->max_lag,
           "I4: rank " + std::to_string(index) + " lags by " + std::to_string(rank.member.lag()));
  }

  void end_grace(int /*nobody*/) {
    std::vector<Coordinator::Outgoing> out;
    coordinator_.tick(coordinator_.next_deadline(), &out);
    route(out);
  }

  static std::string text_of(const Message& message) {
    std::vector<std::uint8_t> bytes;
    encode(message, &bytes);
    return std::string(bytes.begin(), bytes.end());
  }

  const Job* job_;
  Coordinator coordinator_;
  std::vector<RankState> ranks_;
  std::map<std::uint64_t, Round> rounds_;
  std::uint64_t flush_end_ = 0;
  std::string broken_;
};

struct Outcome {
  std::size_t states = 0;
  std::size_t ends = 0;
  std::string broken;    // what, and how it came to it
  bool complete = true;  // no limit was hit
};

// Depth first; the story of a failure is the path to it.
Outcome explore(const Job& job, std::size_t limit = 4'000'000) {
  struct Frame {
    World world;
    std::vector<World::Event> events;
    std::size_t next;
    World::Event by;
  };
  struct Mix {
    std::size_t operator()(const std::pair<std::size_t, std::size_t>& both) const {
      return both.first;
    }
  };
  Outcome outcome;
  // 128 bits stand for a state.
  std::unordered_set<std::pair<std::size_t, std::size_t>, Mix> seen;
  std::vector<Frame> path;
  const auto enter = [&](World world, const World::Event& event) {
    std::string digest = world.key();
    const std::size_t one = std::hash<std::string>()(digest);
    std::reverse(digest.begin(), digest.end());
    const std::size_t two = std::hash<std::string>()(digest);
    if (world.broken().empty() && !seen.insert({one, two}).second) return;
    ++outcome.states;
    std::vector<World::Event> events = world.events();
    if (world.broken().empty() && events.empty()) {
      ++outcome.ends;
      world.check_end();
    }
    path.push_back({std::move(world), std::move(events), 0, event});
  };
  enter(World(job), {"start", -1, nullptr});
  while (!path.empty()) {
    Frame& top = path.back();
    if (!top.world.broken().empty()) {
      outcome.broken = top.world.broken() + "; after:";
      for (const Frame& frame : path) {
        outcome.broken += std::string("\n  ") + frame.by.name + ' ' + std::to_string(frame.by.rank);
      }
      outcome.broken += "\n" + top.world.key();
      return outcome;
    }
    if (top.next == top.events.size()) {
      path.pop_back();
      continue;
    }
    if (outcome.states >= limit) {
      outcome.complete = false;
      return outcome;
    }
    const World::Event event = top.events[top.next++];
    World world = top.world;
    (world.*event.happen)(event.rank);
    enter(std::move(world), event);
  }
  return outcome;
}

const std::vector<Mode> kModes{
    {ModeKind::kSync},      {ModeKind::kMajority},         {ModeKind::kSolo},
    {ModeKind::kQuorum, 2}, {ModeKind::kDesignated, 0, 7}, {ModeKind::kAsync}};

// A sanitizer makes this ten times slower and finds nothing in the larger jobs
// that it does not find in the smaller ones: here is one thread only.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kThorough = false;
#else
constexpr bool kThorough = true;
#endif

struct Case {
  const char* name;
  std::vector<std::string> programs;
  int max_lag;
  bool large = false;
};

void PrintTo(const Case& job, std::ostream* out) { *out << job.name; }

class Exploration : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Small, Exploration,
    ::testing::Values(Case{"TwoRanksThreeRounds", {"aaaf", "aaaf"}, 1},
                      Case{"TwoRanksWithRoomInTheRing", {"aaaf", "aaaf"}, 2},
                      Case{"GoingOnAfterAFlush", {"aafaf", "afaf"}, 2},
                      Case{"FewerBatches", {"aaaf", "af"}, 2}, Case{"NoBatch", {"aaf", "f"}, 1},
                      Case{"OneLeaves", {"aaaf", "aal"}, 2},
                      Case{"AllLeaveWithoutAFlush", {"aaa", "aa"}, 2},
                      Case{"AModeChange", {"asaaf", "aaaf"}, 2},
                      Case{"TwoModeChanges", {"asaf", "aaof"}, 2},
                      Case{"ThreeRanks", {"aaf", "af", "af"}, 1, true},
                      Case{"ThreeRanksOneLeaves", {"af", "af", "al"}, 1, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(Exploration, AllInvariantsInEveryState) {
  const Case& param = GetParam();
  if (param.large && !kThorough) GTEST_SKIP() << "too large under a sanitizer";
  std::size_t states = 0;
  for (const Mode& mode : kModes) {
    for (const double grace : {0.0, 1.0}) {
      if (grace > 0 && mode.kind != ModeKind::kMajority) continue;
      const Outcome outcome = explore({param.programs, mode, param.max_lag, grace});
      std::printf("%-14s grace %g: %8zu states, %zu ends\n", to_string(mode).c_str(), grace,
                  outcome.states, outcome.ends);
      ASSERT_EQ(outcome.broken, "") << to_string(mode);
      ASSERT_TRUE(outcome.complete) << to_string(mode);
      EXPECT_GT(outcome.ends, 0u);
      states += outcome.states;
    }
  }
  RecordProperty("states", std::to_string(states));
}

struct Planted {
  Fault fault;
  const char* name;
  std::vector<std::string> programs;
  ModeKind mode;
  const char* found_as;
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

class PlantedFault : public ::testing::TestWithParam<Planted> {};

INSTANTIATE_TEST_SUITE_P(
    Each, PlantedFault,
    ::testing::Values(
        Planted{Fault::kKeepsWhatItSent,
                "KeepsWhatItSent",
                {"aaf", "aaf"},
                ModeKind::kSync,
                "lies there"},
        Planted{Fault::kForgetsADeposit, "ForgetsADeposit", {"aaf", "aaf"}, ModeKind::kSolo, "I1"},
        Planted{Fault::kIgnoresTheRing, "IgnoresTheRing", {"aaaf", "af"}, ModeKind::kSolo, "I4"},
        Planted{Fault::kTearsADeposit, "TearsADeposit", {"aaf", "aaf"}, ModeKind::kSolo, "torn"},
        Planted{Fault::kActivatesOneModeEarly,
                "ActivatesOneModeEarly",
                {"aaf", "aaf"},
                ModeKind::kSync,
                "I2"},
        Planted{Fault::kForgetsALeave, "ForgetsALeave", {"aaf", "aal"}, ModeKind::kSolo, "I1"},
        Planted{Fault::kForgetsACall, "ForgetsACall", {"aaf", "aaf"}, ModeKind::kSync, "I5"},
        Planted{Fault::kCountsACallTwice, "CountsACallTwice", {"af", "af"}, ModeKind::kSync, "I3"},
        Planted{Fault::kPublishesEarly, "PublishesEarly", {"af", "af"}, ModeKind::kSync, "I2"},
        Planted{Fault::kSkipsAResult, "SkipsAResult", {"aaaf", "aaaf"}, ModeKind::kSync, "I2"},
        Planted{
            Fault::kFlushTakesTooMuch, "FlushTakesTooMuch", {"faf", "faf"}, ModeKind::kSolo, "I2"},
        Planted{Fault::kFullWeights, "FullWeights", {"aaf", "aaf"}, ModeKind::kSolo, "weight"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(PlantedFault, IsFound) {
  const Planted& planted = GetParam();
  Job job{planted.programs, {planted.mode}, /*max_lag=*/1};
  ASSERT_EQ(explore(job).broken, "") << "without the fault";
  job.fault = planted.fault;
  const Outcome outcome = explore(job);
  EXPECT_NE(outcome.broken.find(planted.found_as), std::string::npos) << outcome.broken;
  std::printf("%s\n", outcome.broken.substr(0, outcome.broken.find('\n')).c_str());
}

}  // namespace
}  // namespace hvd_partial

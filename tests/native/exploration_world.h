// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_EXPLORATION_WORLD_H_
#define HVD_PARTIAL_TESTS_EXPLORATION_WORLD_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exploration_key.h"
#include "protocol/coordinator.h"
#include "protocol/member.h"

namespace hvd_partial {

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
  kForgetsAnActivation,    // one rank never hears of a round
  kForgetsTheMembers,      // ... of a change of the members
  kRepeatsAnActivation,    // one rank hears of it twice
  kCountsACallTwice,       // a call stands for two ranks
  kPublishesEarly,         // before all have joined
  kSkipsAResult,           // one is released unseen
  kFlushTakesTooMuch,      // results of rounds after the flush
  kFullWeights,            // lateness is ignored
  kFreesWhatIsRead,        // latest only: a result is replaced while it is read
  kKeepsTheOldest,         // latest only: the new result is dropped
  kLossNotToldToOne,       // one survivor never hears of a lost rank
  kLossNotHeard,           // nor does the coordinator: a lost rank counts
  kLossNamesAnother,       // the wrong rank is named
  kGoesOnWithoutTheLost,   // rounds are published without the lost rank
  kGoodbyeExcusesAll,      // who has said goodbye is never missed
};

// What a rank's program does, a letter each.
//   a  allreduce      f  flush      l  leave
//   s  set_mode(sync)        o  set_mode(solo)        y  set_mode(async)
struct Job {
  std::vector<std::string> programs;
  Mode mode;
  int max_lag = 2;
  double grace = 0;
  bool latest_only = false;
  bool reads_slowly = false;  // further rounds may be published while results are read
  int victim = -1;            // the rank that may die, at any moment
  Fault fault = Fault::kNone;
};

// Sets of ranks, a bit each, and names for stories.
inline std::uint64_t bit(int rank) { return std::uint64_t{1} << rank; }
inline bool has(std::uint64_t bits, int rank) { return (bits >> rank & 1) != 0; }
inline std::string name(int rank) { return "rank " + std::to_string(rank); }
inline std::string name(std::uint64_t round) { return "round " + std::to_string(round); }

// A value that copies of a world share until one of them changes it.
template <typename T>
class Shared {
 public:
  template <typename... Args>
  void emplace(Args&&... args) {
    value_ = std::make_shared<T>(std::forward<Args>(args)...);
  }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  T& change() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }

 private:
  std::shared_ptr<T> value_;
};

// A whole job: the real Coordinator and the real Members, the little that the
// engine does between them (progress.cc, channel.cc), and queues of messages.
// Beside them ghost state, which knows what the protocol does not: which
// contributions went where. Every event checks the invariants it can touch.
class World {
 public:
  static constexpr int kMostRanks = 3;

  explicit World(const Job& job);

  struct Event {
    enum class Kind : std::uint8_t {
      kActs,       // the user's thread makes its next step
      kIsHeard,    // its oldest message reaches the coordinator
      kHears,      // the coordinator's oldest message reaches it
      kJoins,      // its progress thread takes part in the next round
      kPublishes,  // and has the result
      kDies,
      kNotices,   // its transport says that a rank is lost
      kGraceEnds  // for everybody
    };
    Kind kind;
    int rank;

    std::string describe() const;
    friend bool operator==(const Event& a, const Event& b) {
      return a.kind == b.kind && a.rank == b.rank;
    }
  };
  // At most one of each kind for each rank.
  struct Events {
    bool contains(const Event& event) const { return std::find(begin(), end(), event) != end(); }
    std::array<Event, 7 * kMostRanks + 1> all;
    int size = 0;
    void add(Event::Kind kind, int rank) { all[static_cast<std::size_t>(size++)] = {kind, rank}; }
    const Event* begin() const { return all.data(); }
    const Event* end() const { return all.data() + size; }
  };

  // Everything that can happen now.
  Events events() const;
  // Those of them that need not be delayed: see exploration_world.cc for why.
  Events urgent() const;
  void happen(const Event& event);

  // Not empty: what is wrong.
  const std::string& broken() const { return broken_; }
  // Where nothing can happen any more.
  void check_end();

  // Equal for states that have the same future. With `symmetry` also for
  // states that are the same but for the numbers of ranks which do the same.
  Key key(bool symmetry) const;
  std::string describe() const;

 private:
  enum class Phase : std::uint8_t { kIdle, kDepositing, kWaiting, kFlushing, kReading };
  enum class Fate : std::uint8_t { kAlive, kFailed, kDead };

  // What a round is, whoever looks at it.
  struct Round {
    Mode mode;
    bool flush = false;
    std::uint64_t members = 0;  // a bit each, as all below
    std::uint64_t quorum = 0;   // counted, and waited for it when it started
    int required = 0;
    std::uint64_t joined = 0;
    std::uint64_t published = 0;
    std::uint64_t contributors = 0;
    int contributions = 0;
  };

  // A contribution that is not in a round yet: its weights had seen the rounds
  // before `applied`.
  struct Held {
    std::uint64_t applied = 0;
    bool full_weight = false;
  };

  struct Rank {
    explicit Rank(const Member::Options& options) : member(options), known_mode(options.mode) {}

    Member member;
    std::size_t next = 0;  // in its program
    Phase phase = Phase::kIdle;
    Fate fate = Fate::kAlive;
    bool opened = false;
    bool gone = false;           // has said goodbye
    bool all_gone = false;       // has been told that everybody has
    bool notices_death = false;  // its transport has something to tell
    int blames = -1;             // the rank that its failure names
    std::vector<Message> up;     // the oldest first
    std::vector<Message> down;
    std::uint64_t coming_members = 0;
    std::vector<std::uint64_t> activated_members;  // of rounds not joined yet
    std::optional<Snapshot> joined;                // and not published
    Mode known_mode;                               // of the last round it has heard of
    std::vector<Held> held;
    Held depositing;
    std::vector<std::uint64_t> ring;     // rounds of the results that lie there
    std::vector<std::uint64_t> reading;  // of these, those that the user reads
    std::uint64_t applied = 0;           // rounds before it, null rounds passed over
    int asked = -1;                      // the round that a Call of this rank waits for
    // What the coordinator has heard of it.
    bool heard_open = false;
    bool heard_flush = false;
    bool heard_leave = false;
    int heard_call = -1;
  };

  const std::string& program(int rank) const {
    return job_->programs[static_cast<std::size_t>(rank)];
  }
  bool fault(Fault which) const { return job_->fault == which; }
  Rank& change(int rank) { return ranks_[static_cast<std::size_t>(rank)].change(); }
  const Rank& rank(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  // The check itself must cost nothing: the text is made when it fails.
  template <typename Text>
  void expect(bool holds, Text&& what) {
    if (!holds && broken_.empty()) broken_ = what();
  }

  bool may_act(const Rank& rank) const;
  bool may_join(const Rank& rank) const;
  bool may_publish(const Rank& rank) const;
  bool blocked(const Rank& rank) const;

  void act(int index);
  void begin_deposit(Rank* rank);
  void end_deposit(int index);
  void leave(Rank* rank);
  void returns(int index);
  void release(int index);
  void pass_null_rounds(Rank* rank);
  void deliver_up(int index);
  void deliver_down(int index);
  void join(int index);
  void publish(int index);
  void die(int index);
  void notice(int index);
  void end_grace();

  void send(Rank* rank, Message message);
  void fail(Rank* rank, int lost);
  void route(const std::vector<Coordinator::Outgoing>& out);
  void note_activation(const Activate& message);
  void check_progress();
  void check_complete(std::uint64_t number);
  void check_flushed(int index);
  bool coordinator_lives() const { return !over_ && rank(0).fate != Fate::kDead; }
  bool counts(const Rank& rank) const { return !rank.heard_flush && !rank.heard_leave; }
  std::vector<int> counting() const;
  bool owes(int index) const;

  std::uint64_t activated() const { return first_ + rounds_.size(); }
  Round& round(std::uint64_t number) { return rounds_[number - first_]; }
  const Round& round(std::uint64_t number) const { return rounds_[number - first_]; }
  int total(std::uint64_t number) const {
    return number < first_ || number >= activated() ? 0 : round(number).contributions;
  }
  void forget_rounds();

  void put(const Rank& rank, const std::array<int, kMostRanks>& place, KeyWriter* key) const;
  void put(const Message& message, const std::array<int, kMostRanks>& place, KeyWriter* key) const;
  Key key(const std::vector<int>& order) const;

  const Job* job_;
  int size_;
  Shared<Coordinator> coordinator_;
  std::array<Shared<Rank>, kMostRanks> ranks_;
  // From the oldest one on that somebody has yet to join, publish or apply.
  std::vector<Round> rounds_;
  std::uint64_t first_ = 0;
  std::uint64_t announced_ = 0;  // members, to ranks that have not left
  std::uint64_t flush_end_ = 0;
  Mode mode_;          // as the last SetMode that was heard has it
  bool died_ = false;  // the victim
  bool over_ = false;  // the coordinator has told everybody of a lost rank
  std::string broken_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_EXPLORATION_WORLD_H_

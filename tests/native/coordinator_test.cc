// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/coordinator.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace hvd_partial {
namespace {

constexpr ChannelId kChannel = 0;

class CoordinatorTest : public ::testing::Test {
 protected:
  void start(int size, Mode mode, double grace = 0) {
    size_ = size;
    coordinator_ = std::make_unique<Coordinator>(size);
    for (int rank = 0; rank < size; ++rank) {
      send(rank, OpenChannel{"c", "same", mode, grace});
      EXPECT_TRUE(take<Activate>().empty());
    }
    out_.clear();
  }

  void send(int from, const Message& message) { coordinator_->handle(from, message, now_, &out_); }
  void call(int rank, bool waiting = true) { send(rank, Call{kChannel, round_, waiting, 0.1}); }
  void tick(double now) {
    now_ = now;
    coordinator_->tick(now, &out_);
  }

  // All messages of a kind since the last look.
  template <typename T>
  std::vector<std::pair<int, T>> take() {
    std::vector<std::pair<int, T>> found;
    for (const auto& [to, message] : out_) {
      if (const auto* m = std::get_if<T>(&message)) found.emplace_back(to, *m);
    }
    return found;
  }

  // Expects that `round_` was activated on exactly these ranks.
  void expect_activated(const std::set<int>& ranks, bool flush = false) {
    std::set<int> activated;
    for (const auto& [to, message] : take<Activate>()) {
      EXPECT_EQ(message.round, round_);
      EXPECT_EQ(message.flush, flush);
      activated.insert(to);
    }
    EXPECT_EQ(activated, ranks) << "round " << round_;
    out_.clear();
    ++round_;
  }
  void expect_nothing() { EXPECT_TRUE(take<Activate>().empty()) << "round " << round_; }

  std::set<int> everybody() const {
    std::set<int> ranks;
    for (int rank = 0; rank < size_; ++rank) ranks.insert(rank);
    return ranks;
  }

  int size_ = 0;
  double now_ = 1;
  std::uint64_t round_ = 0;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Coordinator::Outgoing> out_;
};

TEST_F(CoordinatorTest, QuorumOfEachMode) {
  const struct {
    Mode mode;
    int required;
  } cases[] = {{{ModeKind::kSync}, 5},
               {{ModeKind::kMajority}, 3},
               {{ModeKind::kSolo}, 1},
               {{ModeKind::kAsync}, 1},
               {{ModeKind::kQuorum, 4}, 4}};
  for (const auto& [mode, required] : cases) {
    SCOPED_TRACE(to_string(mode));
    round_ = 0;
    start(5, mode);
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < required - 1; ++rank) {
        call(rank);
        expect_nothing();
      }
      call(required - 1);
      expect_activated(everybody());
    }
  }
}

TEST_F(CoordinatorTest, DesignatedWaitsForTheDrawnRank) {
  const Mode mode{ModeKind::kDesignated, 0, 42};
  start(4, mode);
  std::set<int> drawn;
  for (int i = 0; i < 64; ++i) {
    const int initiator = designated_rank(42, round_, {0, 1, 2, 3});
    drawn.insert(initiator);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == initiator) continue;
      call(rank);
      expect_nothing();
    }
    call(initiator);
    expect_activated(everybody());
  }
  EXPECT_EQ(drawn, everybody()) << "each rank is drawn now and then";
}

TEST_F(CoordinatorTest, CallsThatDoNotWaitOrAreStaleDoNotCount) {
  start(3, {ModeKind::kMajority});
  call(0);
  call(1, /*waiting=*/false);
  expect_nothing();
  call(0);  // twice is still one rank
  expect_nothing();
  call(2);
  expect_activated(everybody());
  send(1, Call{kChannel, 0, true, 0.1});  // asks for a round that was activated already
  call(2);
  expect_nothing();
  call(0);
  expect_activated(everybody());
}

TEST_F(CoordinatorTest, RoundsStartWhenAllHaveOpened) {
  coordinator_ = std::make_unique<Coordinator>(2);
  send(0, OpenChannel{"c", "same", {ModeKind::kSolo}, 0});
  call(0);
  expect_nothing();
  send(1, OpenChannel{"c", "same", {ModeKind::kSolo}, 0});
  expect_activated({0, 1});
}

TEST_F(CoordinatorTest, DisagreementReachesEveryRank) {
  coordinator_ = std::make_unique<Coordinator>(3);
  send(0, OpenChannel{"c", "2 tensors\nfloat32[3]", {ModeKind::kSolo}, 0});
  send(2, OpenChannel{"c", "2 tensors\nfloat32[4]", {ModeKind::kSolo}, 0});
  send(1, OpenChannel{"c", "2 tensors\nfloat32[3]", {ModeKind::kSolo}, 0});
  std::set<int> told;
  for (const auto& [to, message] : take<ChannelRejected>()) {
    told.insert(to);
    EXPECT_NE(message.reason.find("rank 0 has 'float32[3]' where rank 2 has 'float32[4]'"),
              std::string::npos)
        << message.reason;
  }
  EXPECT_EQ(told, (std::set<int>{0, 1, 2}));
  call(0);
  expect_nothing();
}

TEST_F(CoordinatorTest, GraceWaitsForTheRestAndNotLonger) {
  start(4, {ModeKind::kMajority}, /*grace=*/0.5);
  call(0);
  EXPECT_EQ(coordinator_->next_deadline(), kNever);
  call(1);
  expect_nothing();
  EXPECT_DOUBLE_EQ(coordinator_->next_deadline(), 1.5);
  call(2);
  tick(1.4);
  expect_nothing();
  tick(1.5);
  expect_activated(everybody());
  EXPECT_EQ(coordinator_->next_deadline(), kNever);

  for (int rank = 0; rank < 4; ++rank) {
    expect_nothing();
    call(rank);
  }
  expect_activated(everybody());  // at once, all are here
}

TEST_F(CoordinatorTest, LearnedGraceFollowsJitterAndIsBounded) {
  start(4, {ModeKind::kMajority}, /*grace=*/-1);
  const auto run = [this](double jitter, double late, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const double begin = now_ + 0.1;
      for (int rank = 0; rank < 4; ++rank) {
        const double arrival = begin + jitter * rank + (rank == 3 ? late : 0);
        while (coordinator_->next_deadline() < arrival) tick(coordinator_->next_deadline());
        now_ = arrival;
        send(rank, Call{kChannel, round_, take<Activate>().empty(), 0.1});
      }
      ASSERT_FALSE(take<Activate>().empty());
      out_.clear();
      ++round_;
    }
  };
  run(/*jitter=*/0.001, /*late=*/0, 80);
  EXPECT_GT(coordinator_->grace_seconds(kChannel), 0.002) << "covers the jitter";
  EXPECT_LT(coordinator_->grace_seconds(kChannel), 0.011) << "a tenth of the interval";
  run(/*jitter=*/0.001, /*late=*/0.5, 80);
  EXPECT_LT(coordinator_->grace_seconds(kChannel), 0.07) << "a late rank does not raise it";
}

TEST_F(CoordinatorTest, ModeChangeHoldsForTheNextRoundOfEveryRank) {
  start(4, {ModeKind::kSync});
  call(0);
  expect_nothing();
  send(3, SetMode{kChannel, {ModeKind::kSolo}});
  for (const auto& [to, message] : take<Activate>()) EXPECT_EQ(message.mode.kind, ModeKind::kSolo);
  expect_activated(everybody());
  send(1, SetMode{kAllChannels, {ModeKind::kQuorum, 2}});
  call(2);
  expect_nothing();
  call(1);
  expect_activated(everybody());
}

TEST_F(CoordinatorTest, ModeForAllHoldsForChannelsOpenedLater) {
  start(2, {ModeKind::kSync});
  send(1, SetMode{kAllChannels, {ModeKind::kSolo}});
  for (int rank = 0; rank < 2; ++rank) send(rank, OpenChannel{"late", "x", {ModeKind::kSync}, 0});
  out_.clear();
  send(0, Call{1, 0, true, 0});
  ASSERT_EQ(take<Activate>().size(), 2u);
  EXPECT_EQ(take<Activate>()[0].second.mode.kind, ModeKind::kSolo);
}

TEST_F(CoordinatorTest, FlushingRanksAreNotWaitedFor) {
  start(3, {ModeKind::kSync});
  send(0, Flush{kChannel});
  call(1);
  expect_nothing();
  call(2);
  expect_activated(everybody());  // they take part all the same
  send(1, Flush{kChannel});
  call(2);
  expect_activated(everybody());
  send(2, Flush{kChannel});
  expect_activated(everybody(), /*flush=*/true);
  call(0);  // and all count again
  call(1);
  expect_nothing();
  call(2);
  expect_activated(everybody());
}

TEST_F(CoordinatorTest, LeavingRankContributesOnceMore) {
  start(3, {ModeKind::kSync});
  send(0, Leave{kChannel, /*holds_contribution=*/true});
  call(1);
  call(2);
  expect_activated({0, 1, 2});
  call(1);
  expect_nothing();
  send(2, Leave{kChannel, /*holds_contribution=*/false});
  for (const auto& [to, message] : take<Members>()) EXPECT_EQ(message.bits[0], 0b010u);
  expect_activated({1});
}

TEST_F(CoordinatorTest, GoodbyeOfAllEndsTheJob) {
  start(2, {ModeKind::kSync});
  send(1, Goodbye{});
  EXPECT_TRUE(take<AllGone>().empty());
  now_ += 10;
  call(0);
  ASSERT_EQ(take<StillTraining>().size(), 1u);
  EXPECT_EQ(take<StillTraining>()[0].first, 1);
  expect_activated({0});
  send(0, Goodbye{});
  EXPECT_EQ(take<AllGone>().size(), 1u);
}

TEST_F(CoordinatorTest, DeathIsToldToAllUnlessItHadSaidGoodbye) {
  start(3, {ModeKind::kSolo});
  EXPECT_TRUE(coordinator_->on_peer_lost(1, "gone", &out_));
  ASSERT_EQ(take<PeerLost>().size(), 1u);
  EXPECT_EQ(take<PeerLost>()[0].second.peer, 1);
  out_.clear();
  send(2, Goodbye{});
  EXPECT_FALSE(coordinator_->on_peer_lost(2, "gone", &out_));
  EXPECT_TRUE(take<PeerLost>().empty());
}

// Its last rounds cannot end without it.
TEST_F(CoordinatorTest, GoodbyeExcusesADeathOnlyWhenAllItsRoundsAreComplete) {
  for (const bool holds : {false, true}) {
    round_ = 0;
    start(3, {ModeKind::kSolo});
    call(0);
    expect_activated({0, 1, 2});
    send(2, Leave{kChannel, holds, /*round=*/0});
    send(2, Goodbye{});
    std::uint64_t complete = 1;
    if (holds) {
      call(0);
      expect_activated({0, 1, 2});
      send(2, Leave{kChannel, false, /*round=*/1});
      complete = 2;
    }
    EXPECT_TRUE(coordinator_->on_peer_lost(2, "gone", &out_));
    EXPECT_EQ(take<PeerLost>().size(), 1u);
    out_.clear();
    send(2, Leave{kChannel, false, complete});
    EXPECT_FALSE(coordinator_->on_peer_lost(2, "gone", &out_));
    EXPECT_TRUE(take<PeerLost>().empty());
  }
}

TEST_F(CoordinatorTest, AbortIsToldToAll) {
  start(2, {ModeKind::kSolo});
  send(1, Abort{"KeyError: 'loss'"});
  ASSERT_EQ(take<Aborted>().size(), 1u);
  EXPECT_EQ(take<Aborted>()[0].first, Coordinator::kEverybody);
  EXPECT_EQ(take<Aborted>()[0].second.peer, 1);
}

// ---- exclusions -------------------------------------------------------------

TEST_F(CoordinatorTest, NothingWaitsForTheExcluded) {
  start(4, {ModeKind::kSync});
  send(2, Exclude{kChannel, {0b1000}, false});
  call(0);
  call(1);
  expect_nothing();
  call(2);
  for (const auto& [to, message] : take<Members>()) {
    EXPECT_EQ(message.bits[0], 0b1111u) << "it stays";
    EXPECT_EQ(message.excluded[0], 0b1000u);
    EXPECT_FALSE(message.drop);
  }
  EXPECT_EQ(take<Members>().size(), 4u);
  expect_activated(everybody());
  // It is not one of them either, if it comes first.
  call(3);
  call(0);
  call(1);
  expect_nothing();
  send(0, Exclude{kChannel, {}, false});
  call(2);
  expect_activated(everybody());
  // Undone: for all again.
  call(0);
  call(1);
  call(2);
  expect_nothing();
  call(3);
  expect_activated(everybody());
}

TEST_F(CoordinatorTest, AnExclusionCompletesTheRoundThatWaits) {
  start(3, {ModeKind::kSync});
  call(0);
  call(1);
  expect_nothing();
  send(0, Exclude{kChannel, {0b100}, true});
  ASSERT_EQ(take<Members>().size(), 3u);
  EXPECT_TRUE(take<Members>()[0].second.drop);
  expect_activated(everybody());
}

TEST_F(CoordinatorTest, TheExcludedGoOnWhenNobodyElseIsLeft) {
  start(2, {ModeKind::kSync});
  send(0, Exclude{kChannel, {0b10}, true});
  send(0, Leave{kChannel, false});
  call(1);
  ASSERT_EQ(take<Members>().size(), 1u);
  EXPECT_TRUE(take<Members>()[0].second.excluded.empty()) << "what it gives counts again";
  expect_activated({1});
}

TEST_F(CoordinatorTest, AFlushMeetsTheExcludedToo) {
  start(2, {ModeKind::kSync});
  send(0, Exclude{kChannel, {0b10}, true});
  send(0, Flush{kChannel});
  expect_nothing();
  call(1);  // a round of its own, so that it comes to its end
  ASSERT_EQ(take<Members>().size(), 2u);
  EXPECT_EQ(take<Members>()[0].second.excluded[0], 0b10u) << "what it gives is still dropped";
  expect_activated(everybody());
  send(1, Flush{kChannel});
  expect_activated(everybody(), /*flush=*/true);
}

TEST_F(CoordinatorTest, GraceAndDrawsAreAmongThoseThatCount) {
  start(3, {ModeKind::kQuorum, 1}, /*grace=*/10);
  send(0, Exclude{kChannel, {0b100}, false});
  call(0);
  expect_nothing();
  call(1);  // everybody who counts is there: no grace
  expect_activated(everybody());
  send(0, SetMode{kChannel, {ModeKind::kDesignated, 0, 7}});
  for (int i = 0; i < 20; ++i) {
    const int drawn = designated_rank(7, round_, {0, 1});
    call(2);
    call(1 - drawn);
    expect_nothing();
    call(drawn);
    expect_activated(everybody());
  }
}

TEST_F(CoordinatorTest, OfDecisionsThatAllRanksMakeTheFirstCounts) {
  start(3, {ModeKind::kSync});
  send(2, Decide{kChannel, 5, {ModeKind::kSolo}, {}, false});
  call(0);
  EXPECT_EQ(take<Activate>()[0].second.mode.kind, ModeKind::kSolo);
  expect_activated(everybody());
  // The others come to the same, or to what was decided before.
  send(0, Decide{kChannel, 5, {ModeKind::kSync}, {0b1}, false});
  send(1, Decide{kChannel, 4, {ModeKind::kMajority}, {0b1}, false});
  call(0);
  EXPECT_EQ(take<Activate>()[0].second.mode.kind, ModeKind::kSolo);
  EXPECT_TRUE(take<Members>().empty());
  expect_activated(everybody());
  // A mode and an exclusion are in force together.
  send(1, Decide{kChannel, 6, {ModeKind::kSync}, {0b100}, true});
  call(0);
  expect_nothing();
  call(1);
  EXPECT_EQ(take<Members>()[0].second.excluded[0], 0b100u);
  expect_activated(everybody());
  send(1, Decide{kChannel, 7, {ModeKind::kQuorum, 9}, {}, false});  // does not fit: ignored
  call(0);
  call(1);
  expect_activated(everybody());
}

// ---- processes that do not answer --------------------------------------------

class SilenceTest : public CoordinatorTest {
 protected:
  static constexpr double kLeaveOut = 2;
  static constexpr std::uint32_t kMaxLag = 4;

  void start(int size, Mode mode) {
    size_ = size;
    coordinator_ = std::make_unique<Coordinator>(size);
    coordinator_->set_leave_out_seconds(kLeaveOut);
    for (int rank = 0; rank < size; ++rank) {
      send(rank, OpenChannel{"c", "same", mode, 0, kMaxLag});
    }
    out_.clear();
  }

  // `rank` says that the round activated last does not end there; then rank 0
  // asks. Returns the number of the question.
  std::uint64_t ask(int rank) {
    out_.clear();
    send(rank, Held{kChannel, round_ - 1, HeldCause::kReducing, kLeaveOut / 2});
    tick(now_);
    const auto questions = take<Freeze>();
    EXPECT_FALSE(questions.empty());
    return questions.empty() ? 0 : questions[0].second.number;
  }
  void answer(int rank, std::uint64_t number, std::uint64_t published) {
    send(rank, Frozen{number, {published}});
  }
  void time_is_up() {
    out_.clear();
    tick(now_ + kLeaveOut / 2);
  }
  std::set<int> told(const std::vector<std::pair<int, Thaw>>& messages) {
    std::set<int> ranks;
    for (const auto& [to, message] : messages) ranks.insert(to);
    return ranks;
  }
};

TEST_F(SilenceTest, TheRoundThatHasEndedNowhereIsDeferredAndTheSilentLeftOut) {
  start(4, {ModeKind::kSolo});
  call(0);
  expect_activated(everybody());
  const std::uint64_t number = ask(0);
  for (const int rank : {0, 1, 3}) answer(rank, number, 0);
  // While it is asked no round starts.
  call(1);
  expect_nothing();
  time_is_up();
  EXPECT_EQ(take<Defer>().size(), 4u);
  EXPECT_EQ(take<Defer>()[0].second.round, 0u);
  EXPECT_EQ(take<Members>()[0].second.bits[0], 0b1011u);
  EXPECT_EQ(take<Members>()[0].second.keep_from, 1u);
  EXPECT_EQ(told(take<Thaw>()), (std::set<int>{0, 1, 3}));
  // The call that came meanwhile counts.
  EXPECT_EQ(take<Activate>()[0].second.round, 1u);
  EXPECT_EQ(coordinator_->take_notices().size(), 1u);
  ++round_;

  // It has room for three more; then all wait.
  for (int i = 0; i < 2; ++i) {
    out_.clear();
    call(3);
    expect_activated(everybody());
  }
  call(3);
  expect_nothing();
  const std::vector<Stall> stalls = coordinator_->stalls(now_);
  ASSERT_FALSE(stalls.empty());
  ASSERT_EQ(stalls[0].waited_for.size(), 1u);
  EXPECT_EQ(stalls[0].waited_for[0].rank, 2);
  EXPECT_EQ(stalls[0].waited_for[0].why, Stall::Why::kSilent);

  // It answers: gets the three, and what was deferred is the next result.
  out_.clear();
  answer(2, number, 0);
  const auto orders = take<Deliver>();
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_EQ(orders[0].first, 0);
  EXPECT_EQ(orders[1].first, 2);
  EXPECT_EQ(orders[0].second.first, 1u);
  EXPECT_EQ(orders[0].second.last, 3u);
  EXPECT_EQ(told(take<Thaw>()), (std::set<int>{2}));
  EXPECT_EQ(take<Members>()[0].second.bits[0], 0b1111u);
  EXPECT_EQ(take<Members>()[0].second.keep_from, kNoRound);
  ASSERT_EQ(take<Activate>().size(), 4u);
  EXPECT_EQ(take<Activate>()[0].second.round, 4u);
  EXPECT_EQ(take<Activate>()[0].second.deferred, 0u);
}

TEST_F(SilenceTest, ARoundThatHasEndedSomewhereIsGivenToTheOthers) {
  start(4, {ModeKind::kMajority});
  call(0);
  call(1);
  expect_activated(everybody());
  const std::uint64_t number = ask(1);
  answer(0, number, 1);
  answer(1, number, 0);
  answer(2, number, 1);
  time_is_up();
  EXPECT_TRUE(take<Defer>().empty());
  const auto orders = take<Deliver>();
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_EQ(orders[0].second.from, 0);
  EXPECT_EQ(orders[0].second.to, 1);
  EXPECT_EQ(orders[0].second.first, 0u);
  EXPECT_EQ(orders[0].second.last, 0u);
  EXPECT_EQ(take<Members>()[0].second.bits[0], 0b0111u);
}

TEST_F(SilenceTest, WhoeverIsNeededIsWaitedFor) {
  start(3, {ModeKind::kSync});
  for (const int rank : {0, 1, 2}) call(rank);
  expect_activated(everybody());
  send(0, Held{kChannel, 0, HeldCause::kReducing, kLeaveOut / 2});
  tick(now_);
  EXPECT_TRUE(take<Freeze>().empty());
  // Another mode can do without.
  send(1, SetMode{kChannel, {ModeKind::kQuorum, 2}});
  send(1, Held{kChannel, 0, HeldCause::kReducing, kLeaveOut / 2});
  tick(now_ + kLeaveOut);
  EXPECT_EQ(take<Freeze>().size(), 3u);
}

TEST_F(SilenceTest, NothingHappensIfAllAnswer) {
  start(3, {ModeKind::kSolo});
  call(0);
  expect_activated(everybody());
  const std::uint64_t number = ask(0);
  out_.clear();
  for (const int rank : {0, 1, 2}) answer(rank, number, 0);
  EXPECT_EQ(told(take<Thaw>()), everybody());
  EXPECT_TRUE(take<Defer>().empty());
  EXPECT_TRUE(take<Members>().empty());
  // It is asked again while it lasts, and no more when it is over.
  EXPECT_EQ(coordinator_->next_deadline(), now_ + kLeaveOut);
  send(0, Held{kChannel, 0, HeldCause::kNone, 0});
  tick(now_ + kLeaveOut);
  EXPECT_TRUE(take<Freeze>().empty());
  EXPECT_EQ(coordinator_->next_deadline(), kNever);
}

TEST_F(SilenceTest, AFlushWaitsForTheSilent) {
  start(3, {ModeKind::kSolo});
  call(0);
  expect_activated(everybody());
  const std::uint64_t number = ask(0);
  for (const int rank : {0, 1}) answer(rank, number, 0);
  time_is_up();
  out_.clear();
  send(0, Flush{kChannel});
  send(1, Flush{kChannel});
  expect_nothing();
  answer(2, number, 0);
  EXPECT_EQ(take<Activate>()[0].second.deferred, 0u);
  EXPECT_FALSE(take<Activate>()[0].second.flush);
  out_.clear();
  ++round_;
  send(2, Flush{kChannel});
  expect_activated(everybody(), /*flush=*/true);
}

TEST_F(SilenceTest, ARankThatEndedWhatTheOthersCouldNotEndsTheJob) {
  start(3, {ModeKind::kSolo});
  call(0);
  expect_activated(everybody());
  const std::uint64_t number = ask(0);
  for (const int rank : {0, 1}) answer(rank, number, 0);
  time_is_up();
  out_.clear();
  answer(2, number, 1);
  ASSERT_EQ(take<Aborted>().size(), 1u);
  EXPECT_EQ(take<Aborted>()[0].first, Coordinator::kEverybody);
  EXPECT_NE(take<Aborted>()[0].second.reason.find("stopped while round 0"), std::string::npos);
}

TEST_F(SilenceTest, NobodyIsLeftOutIfItIsSwitchedOff) {
  start(3, {ModeKind::kSolo});
  coordinator_->set_leave_out_seconds(0);
  call(0);
  expect_activated(everybody());
  send(0, Held{kChannel, 0, HeldCause::kReducing, 60});
  EXPECT_EQ(coordinator_->next_deadline(), kNever);
}

TEST_F(SilenceTest, AnAnswerThatNobodyAskedForIsRefused) {
  start(3, {ModeKind::kSolo});
  EXPECT_NE(coordinator_->objection(1, Frozen{1, {0}}), "");
  call(0);
  expect_activated(everybody());
  const std::uint64_t number = ask(0);
  EXPECT_EQ(coordinator_->objection(1, Frozen{number, {1}}), "");
  EXPECT_NE(coordinator_->objection(1, Frozen{number, {2}}), "");
  EXPECT_NE(coordinator_->objection(1, Frozen{number, {0, 1}}), "");
  EXPECT_NE(coordinator_->objection(1, Frozen{number + 1, {0}}), "");
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/member.h"

#include <gtest/gtest.h>

namespace hvd_partial {
namespace {

Member::Options options(int max_lag = 8, bool latest_only = false) {
  Member::Options options;
  options.max_lag = max_lag;
  options.latest_only = latest_only;
  options.staleness_weights = {1.0, 0.5, 0.25};
  return options;
}

Activate round(std::uint64_t number, bool flush = false) {
  return Activate{0, number, Mode{ModeKind::kSolo}, flush};
}

// A whole round, with `others` contributions of other ranks.
Snapshot run_round(Member* member, int others = 1, bool flush = false) {
  EXPECT_TRUE(member->on_activate(round(member->joined(), flush)));
  EXPECT_TRUE(member->can_join());
  const Snapshot own = member->join();
  member->publish(own, own.contributions + others);
  return own;
}

TEST(Member, ContributesWhatItDepositedOnce) {
  Member member(options());
  EXPECT_FALSE(member.begin_deposit().accumulate);
  const Call call = member.end_deposit(false);
  EXPECT_TRUE(call.waiting);
  EXPECT_EQ(call.round, 0u);
  EXPECT_FALSE(member.ready());

  const Snapshot first = run_round(&member);
  EXPECT_EQ(first.contributions, 1);
  EXPECT_EQ(first.weight, 1.0);
  EXPECT_TRUE(member.ready());
  member.release(1);
  EXPECT_EQ(run_round(&member).contributions, 0);
}

TEST(Member, LateDepositIsWeightedAndDoesNotWait) {
  Member member(options());
  run_round(&member);
  run_round(&member);
  EXPECT_EQ(member.begin_deposit().weight, 0.25);  // computed two rounds before the coming one
  const Call call = member.end_deposit(false);
  EXPECT_FALSE(call.waiting);
  EXPECT_TRUE(member.ready());
  EXPECT_EQ(member.results(), 2);
  EXPECT_EQ(member.late_deposits(), 1u);
  EXPECT_EQ(run_round(&member).weight, 0.25);
}

TEST(Member, LargestLatenessUsesTheLastWeight) {
  Member member(options());
  for (int i = 0; i < 5; ++i) run_round(&member);
  EXPECT_EQ(member.begin_deposit().weight, 0.25);
}

TEST(Member, AsyncKeepsFullWeights) {
  Member member(options());
  ASSERT_TRUE(member.on_activate(Activate{0, 0, Mode{ModeKind::kAsync}, false}));
  member.publish(member.join(), 1);
  EXPECT_EQ(member.begin_deposit().weight, 1.0);
}

TEST(Member, AccumulatesUntilARoundTakesIt) {
  Member member(options());
  run_round(&member);
  member.begin_deposit();
  member.end_deposit(false);
  member.release(1);
  EXPECT_TRUE(member.begin_deposit().accumulate);
  member.end_deposit(false);
  const Snapshot own = run_round(&member);
  EXPECT_EQ(own.contributions, 2);
  EXPECT_EQ(own.weight, 1.5);
}

TEST(Member, NoRoundTakesATornContribution) {
  Member member(options());
  member.begin_deposit();
  ASSERT_TRUE(member.on_activate(round(0)));
  EXPECT_FALSE(member.can_join());
  member.end_deposit(false);
  ASSERT_TRUE(member.can_join());
  EXPECT_EQ(member.join().contributions, 1);
}

TEST(Member, FullRingKeepsItFromTheNextRound) {
  Member member(options(/*max_lag=*/2));
  run_round(&member);
  run_round(&member);
  ASSERT_TRUE(member.on_activate(round(2)));
  EXPECT_FALSE(member.can_join());
  member.release(1);
  EXPECT_TRUE(member.can_join());
  member.publish(member.join(), 1);
  EXPECT_EQ(member.lag(), 2);
  EXPECT_EQ(member.largest_lag(), 2);
}

TEST(Member, SkippedContributionCountsAsACall) {
  Member member(options());
  member.begin_deposit();
  EXPECT_TRUE(member.end_deposit(/*skipped=*/true).waiting);
  const Snapshot own = run_round(&member, /*others=*/0);
  EXPECT_EQ(own.contributions, 0);
  EXPECT_EQ(own.skipped, 1);
  // A null round: nothing to apply, but the wait is over.
  EXPECT_TRUE(member.ready());
  EXPECT_EQ(member.results(), 0);
  EXPECT_EQ(member.applied(), 1u);
}

TEST(Member, FlushEndsWithTheRoundInWhichAllMet) {
  Member member(options());
  member.begin_deposit();
  member.end_deposit(false);
  run_round(&member);
  member.release(1);
  member.begin_flush();
  EXPECT_FALSE(member.ready());
  run_round(&member);  // others go on meanwhile
  EXPECT_TRUE(member.ready());
  EXPECT_FALSE(member.flush_ended());
  member.release(1);
  EXPECT_FALSE(member.ready());
  run_round(&member, /*others=*/0, /*flush=*/true);
  EXPECT_TRUE(member.ready());
  EXPECT_TRUE(member.flush_ended());
  EXPECT_EQ(member.results(), 0) << "a null flush round is not a result";
}

TEST(Member, FlushEndsWhereItEndedForAll) {
  Member member(options());
  member.begin_flush();
  run_round(&member);
  run_round(&member, /*others=*/1, /*flush=*/true);
  run_round(&member);  // somebody goes on before this rank has looked
  EXPECT_EQ(member.results(), 3);
  EXPECT_EQ(member.takeable(), 2);
  member.release(2);
  EXPECT_EQ(member.takeable(), 0);
  EXPECT_TRUE(member.flush_ended());
  member.begin_deposit();
  member.end_deposit(false);
  EXPECT_TRUE(member.ready());
  EXPECT_EQ(member.takeable(), 1);
}

TEST(Member, LatestKeepsTheNewestAndWhatIsBeingRead) {
  Member member(options(/*max_lag=*/1, /*latest_only=*/true));
  run_round(&member);
  member.pin();  // round 0 is being read
  run_round(&member);
  EXPECT_EQ(member.superseded(1), 1);
  EXPECT_EQ(member.superseded(0), 0);
  run_round(&member);
  EXPECT_EQ(member.results(), 2);
  EXPECT_EQ(member.missed(), 1u);
  member.release(1);
  // The weights have seen round 0 only; what was missed counts as late.
  EXPECT_EQ(member.applied(), 1u);
  EXPECT_EQ(member.begin_deposit().weight, 0.25);
}

TEST(Member, AfterLeavingItRelaysWithoutResults) {
  Member member(options(/*max_lag=*/1));
  run_round(&member);
  member.begin_deposit();
  member.end_deposit(false);
  EXPECT_TRUE(member.leave()) << "holds a contribution for one more round";
  const Snapshot own = run_round(&member);
  EXPECT_EQ(own.contributions, 1);
  EXPECT_EQ(member.results(), 0);
  EXPECT_EQ(member.lag(), 0);
}

// A rank that asks for a round and then flushes or leaves without waiting for
// it lets the coordinator activate the last round right behind.
TEST(Member, JoinsRoundsThatWereActivatedTogetherInOrder) {
  Member member(options());
  ASSERT_TRUE(member.on_activate(round(0)));
  ASSERT_TRUE(member.on_activate(round(1, /*flush=*/true)));
  Snapshot own = member.join();
  EXPECT_EQ(own.round, 0u);
  EXPECT_FALSE(member.can_join()) << "round 0 is not complete";
  member.publish(own, 1);
  ASSERT_TRUE(member.can_join());
  own = member.join();
  EXPECT_EQ(own.round, 1u);
  EXPECT_TRUE(own.flush);
}

TEST(Member, RefusesRoundsOutOfTurn) {
  Member member(options());
  EXPECT_FALSE(member.on_activate(round(1)));
  EXPECT_TRUE(member.on_activate(round(0)));
  EXPECT_FALSE(member.on_activate(round(0)));
}

// Excluded: what lies in the send buffer goes into no round, and is counted.
TEST(Member, DropsWhatItHolds) {
  Member member(Member::Options{});
  member.begin_deposit();
  member.end_deposit(false);
  member.begin_deposit();
  member.end_deposit(false);
  ASSERT_TRUE(member.on_activate(Activate{0, 0, Mode{}, false}));
  const Snapshot dropped = member.join(/*drop=*/true);
  EXPECT_EQ(dropped.contributions, 0);
  EXPECT_EQ(dropped.weight, 0);
  EXPECT_EQ(dropped.dropped, 2);
  member.publish(dropped, 1);
  member.release(1);
  member.begin_deposit();
  member.end_deposit(false);
  ASSERT_TRUE(member.on_activate(Activate{0, 1, Mode{}, false}));
  const Snapshot counted = member.join();
  EXPECT_EQ(counted.contributions, 1);
  EXPECT_EQ(counted.weight, 1);
  EXPECT_EQ(counted.dropped, 0);
}

}  // namespace
}  // namespace hvd_partial

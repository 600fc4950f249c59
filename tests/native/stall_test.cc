// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What the coordinator says about who waits for whom, and which lines come of it.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "protocol/coordinator.h"
#include "protocol/stall_watch.h"

namespace hvd_partial {
namespace {

constexpr ChannelId kChannel = 0;

class StallTest : public ::testing::Test {
 protected:
  void start(int size, Mode mode, int opened = -1) {
    size_ = size;
    coordinator_ = std::make_unique<Coordinator>(size);
    for (int rank = 0; rank < (opened < 0 ? size : opened); ++rank) {
      send(rank, OpenChannel{"c", "same", mode, 0});
    }
  }
  void send(int from, const Message& message) {
    out_.clear();
    coordinator_->handle(from, message, now_, &out_);
  }
  void call(int rank, std::uint64_t round) { send(rank, Call{kChannel, round, true, 0.1}); }

  std::vector<Stall> stalls() const { return coordinator_->stalls(now_); }
  // The one stall there is.
  Stall stall() const {
    const auto found = stalls();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? Stall{} : found[0];
  }
  static std::vector<int> ranks_of(const Stall& stall) {
    std::vector<int> ranks;
    for (const auto& missing : stall.waited_for) ranks.push_back(missing.rank);
    return ranks;
  }

  int size_ = 0;
  double now_ = 100;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Coordinator::Outgoing> out_;
};

TEST_F(StallTest, NobodyWaitsNoStall) {
  start(3, {ModeKind::kSync});
  EXPECT_TRUE(stalls().empty());
  for (int rank = 0; rank < 3; ++rank) call(rank, 0);  // round 0 starts
  now_ += 1000;                                        // all compute
  EXPECT_TRUE(stalls().empty());
}

TEST_F(StallTest, SyncNamesWhoHasNotCalledAndWhenItLastDid) {
  start(4, {ModeKind::kSync});
  for (int rank = 0; rank < 4; ++rank) call(rank, 0);
  now_ = 110;
  call(1, 1);
  now_ = 112;
  call(0, 1);
  now_ = 170;
  const Stall found = stall();
  EXPECT_EQ(found.kind, Stall::Kind::kCalls);
  EXPECT_EQ(found.round, 1u);
  EXPECT_EQ(found.since, 110);
  EXPECT_EQ(found.waiting, (std::vector<int>{0, 1}));
  EXPECT_EQ(ranks_of(found), (std::vector<int>{2, 3}));
  EXPECT_EQ(found.waited_for[0].called, 100);
  EXPECT_EQ(found.needed, 2);
  EXPECT_EQ(found.describe(now_),
            "channel 'c', round 1 (sync): ranks 0 and 1 have waited 60.0 s for rank 2 (last called "
            "70.0 s ago), rank 3 (last called 70.0 s ago)");
}

TEST_F(StallTest, QuorumSaysHowManyWouldDo) {
  start(5, {ModeKind::kQuorum, 3});
  call(4, 0);
  now_ += 5;
  const Stall found = stall();
  EXPECT_EQ(found.needed, 2);
  EXPECT_EQ(ranks_of(found), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_NE(found.describe(now_).find("rank 4 has waited 5.0 s for 2 of rank 0 (never called)"),
            std::string::npos)
      << found.describe(now_);
}

TEST_F(StallTest, DesignatedNamesTheDrawnRank) {
  start(4, {ModeKind::kDesignated, 0, 42});
  const int drawn = designated_rank(42, 0, {0, 1, 2, 3});
  for (int rank = 0; rank < 4; ++rank) {
    if (rank != drawn) call(rank, 0);
  }
  EXPECT_EQ(ranks_of(stall()), std::vector<int>{drawn});
}

TEST_F(StallTest, RanksThatHaveNotOpenedAreWaitedForInEveryMode) {
  start(3, {ModeKind::kSolo}, /*opened=*/2);
  call(0, 0);
  const Stall found = stall();
  EXPECT_EQ(ranks_of(found), std::vector<int>{2});
  EXPECT_EQ(found.waited_for[0].why, Stall::Why::kNotOpened);
}

TEST_F(StallTest, LeftRanksAreNotWaitedFor) {
  start(3, {ModeKind::kSync});
  send(2, Leave{kChannel, false});
  call(0, 0);
  EXPECT_EQ(ranks_of(stall()), std::vector<int>{1});
}

TEST_F(StallTest, FlushWaitsForWhoDoesNotFlush) {
  start(3, {ModeKind::kSolo});
  send(1, Flush{kChannel});
  now_ += 30;
  const Stall found = stall();
  EXPECT_EQ(found.kind, Stall::Kind::kFlush);
  EXPECT_EQ(found.since, 100);
  EXPECT_EQ(found.waiting, std::vector<int>{1});
  EXPECT_EQ(ranks_of(found), (std::vector<int>{0, 2}));
  send(0, Flush{kChannel});
  send(2, Flush{kChannel});
  EXPECT_TRUE(stalls().empty());
}

TEST_F(StallTest, RoundThatDoesNotEndIsHeldByWhoSaysSoElseByWhoSaysNothing) {
  start(3, {ModeKind::kSolo});
  call(0, 0);
  now_ += 40;
  send(0, Held{kChannel, 0, HeldCause::kReducing, 30});
  send(1, Held{kChannel, 0, HeldCause::kReducing, 35});
  Stall found = stall();
  EXPECT_EQ(found.kind, Stall::Kind::kReduction);
  EXPECT_EQ(found.since, now_ - 35);
  EXPECT_EQ(ranks_of(found), std::vector<int>{2});
  EXPECT_EQ(found.waited_for[0].why, Stall::Why::kSilent);
  send(2, Held{kChannel, 0, HeldCause::kRingFull, 31});
  found = stall();
  EXPECT_EQ(ranks_of(found), std::vector<int>{2});
  EXPECT_EQ(found.waited_for[0].why, Stall::Why::kRingFull);
  send(2, Held{kChannel, 0, HeldCause::kReducing, 1});
  EXPECT_TRUE(stall().waited_for.empty());
  EXPECT_NE(stall().describe(now_).find("network"), std::string::npos);
  for (int rank = 0; rank < 3; ++rank) send(rank, Held{kChannel, 0, HeldCause::kNone, 0});
  EXPECT_TRUE(stalls().empty());
}

TEST_F(StallTest, WatchSaysEachStallOnceAndItsEndOnce) {
  start(3, {ModeKind::kSync});
  StallWatch watch(60);
  std::vector<StallWatch::Line> lines;
  call(0, 0);
  for (; now_ < 160; now_ += 1) watch.look(stalls(), now_, &lines);
  EXPECT_TRUE(lines.empty());
  EXPECT_FALSE(watch.announced());
  for (; now_ < 400; now_ += 1) {
    if (now_ == 300) call(1, 0);
    watch.look(stalls(), now_, &lines);
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(watch.announced());
  EXPECT_FALSE(lines[0].over);
  EXPECT_EQ(lines[0].text,
            "channel 'c', round 0 (sync): rank 0 has waited 60.0 s for rank 1 (never "
            "called), rank 2 (never called)");
  call(2, 0);
  watch.look(stalls(), now_, &lines);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[1].over);
  EXPECT_EQ(lines[1].text,
            "channel 'c', round 0 (sync): goes on after 300.0 s; the last that was "
            "waited for: rank 2");
  EXPECT_FALSE(watch.announced());
  watch.look(stalls(), now_, &lines);
  EXPECT_EQ(lines.size(), 2u);
}

TEST_F(StallTest, WatchIsSilentWhileRoundsGoOn) {
  start(2, {ModeKind::kSolo});
  StallWatch watch(10);
  std::vector<StallWatch::Line> lines;
  send(1, Flush{kChannel});  // and rank 0 trains on
  for (std::uint64_t round = 0; round < 9; ++round, now_ += 1) {
    call(0, round);
    watch.look(stalls(), now_, &lines);
  }
  EXPECT_TRUE(lines.empty());
  now_ += 5;
  watch.look(stalls(), now_, &lines);
  ASSERT_EQ(lines.size(), 1u) << "the flush has lasted";
  EXPECT_EQ(lines[0].stall.kind, Stall::Kind::kFlush);
}

TEST(StallList, ShortensLongLists) {
  EXPECT_EQ(Stall::list({3}), "rank 3");
  EXPECT_EQ(Stall::list({0, 1, 2}), "ranks 0, 1 and 2");
  std::vector<int> many;
  for (int rank = 0; rank < 64; ++rank) many.push_back(rank);
  EXPECT_EQ(Stall::list(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more");
}

}  // namespace
}  // namespace hvd_partial

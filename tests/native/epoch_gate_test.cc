// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "tensorflow/epoch_gate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace hvd_partial {
namespace {

constexpr std::int64_t kGate = 7;

// One rank that trains: what it deposits, and what the rounds bring.
struct Rank {
  EpochGate gate;
  EpochGate::Plan plan;
  ChannelTotals totals;

  explicit Rank(std::int64_t steps, std::int64_t size, std::int64_t passes = 1)
      : plan{steps, passes, size} {}

  // A round with so many contributions of all ranks, of which so many are its own.
  void apply(std::int64_t contributions, std::int64_t own) {
    totals.contributions += contributions;
    totals.own_included += own;
    ++totals.results;
  }
};

// Steps of an epoch in sync mode when the pipeline makes `ahead` batches more
// than were trained on.
std::int64_t sync_steps(Rank* rank, std::int64_t ahead) {
  const EpochGate::Epoch epoch = rank->gate.begin(kGate, rank->plan, rank->totals);
  std::int64_t handed_out = 0, trained = 0, since_deposit = 0;
  bool open = true;
  while (true) {
    while (open && handed_out < trained + 1 + ahead) {
      open = rank->gate.open(kGate, rank->plan, epoch, handed_out, rank->totals);
      if (open) ++handed_out;
    }
    if (trained == handed_out || !rank->gate.due(kGate, rank->totals.contributions, rank->totals)) {
      return trained;
    }
    ++trained;
    if (++since_deposit == rank->plan.passes) {
      since_deposit = 0;
      rank->apply(rank->plan.size, 1);
    }
  }
}

TEST(EpochGate, SyncEpochsAreClassicHoweverFarThePipelineRunsAhead) {
  for (std::int64_t size : {1, 2, 3, 8}) {
    for (std::int64_t ahead : {0, 1, 5, 100}) {
      Rank rank(10, size);
      for (int epoch = 0; epoch < 4; ++epoch) {
        EXPECT_EQ(sync_steps(&rank, ahead), 10) << size << " ranks, " << ahead << " ahead";
      }
    }
  }
}

TEST(EpochGate, SyncEpochsCountBatchesAndNotContributions) {
  for (std::int64_t ahead : {0, 4}) {
    Rank rank(12, 4, /*passes=*/3);
    for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(sync_steps(&rank, ahead), 12);
  }
}

TEST(EpochGate, ContributionsThatWereLeftOutAreProgressToo) {
  Rank rank(10, 2);
  const EpochGate::Epoch epoch = rank.gate.begin(kGate, rank.plan, rank.totals);
  std::int64_t steps = 0;
  while (rank.gate.open(kGate, rank.plan, epoch, steps, rank.totals)) {
    ++steps;
    const bool finite = steps % 3 != 0;
    rank.apply(finite ? 2 : 1, finite ? 1 : 0);
    rank.totals.own_skipped += finite ? 0 : 1;
    rank.totals.skipped += finite ? 0 : 1;
    ASSERT_LE(steps, 10);
  }
  EXPECT_EQ(steps, 10);
}

TEST(EpochGate, ASlowRankDoesNotBeginABatchThatMostlyBelongsToTheNextEpoch) {
  // Each of its batches takes as long as ten contributions of all.
  Rank rank(10, 4);
  rank.gate.begin(kGate, rank.plan, rank.totals);
  rank.apply(10, 1);
  rank.apply(10, 1);
  EXPECT_TRUE(rank.gate.due(kGate, 20, rank.totals));
  // The rings know more than was taken out of them: 35 + 10 / 2 is the end.
  EXPECT_TRUE(rank.gate.due(kGate, 35, rank.totals));
  EXPECT_FALSE(rank.gate.due(kGate, 36, rank.totals));
}

TEST(EpochGate, WhatOneEpochHasTooMuchTheNextHasLess) {
  Rank rank(5, 2);
  EpochGate::Epoch epoch = rank.gate.begin(kGate, rank.plan, rank.totals);
  EXPECT_EQ(epoch.end, 10);
  rank.apply(9, 3);
  EXPECT_FALSE(rank.gate.open(kGate, rank.plan, epoch, 3, rank.totals));
  rank.apply(4, 2);
  epoch = rank.gate.begin(kGate, rank.plan, rank.totals);
  EXPECT_EQ(epoch.end, 20);
}

TEST(EpochGate, AFlushIsTheStartForAllRanks) {
  Rank rank(5, 2);
  EpochGate::Epoch epoch = rank.gate.begin(kGate, rank.plan, rank.totals);
  rank.apply(12, 3);
  EXPECT_FALSE(rank.gate.open(kGate, rank.plan, epoch, 3, rank.totals));
  ++rank.totals.flushes;
  epoch = rank.gate.begin(kGate, rank.plan, rank.totals);
  EXPECT_EQ(epoch.end, 22);
}

TEST(EpochGate, AnEpochThatWasBrokenOffCountsForNothing) {
  Rank rank(5, 2);
  rank.gate.begin(kGate, rank.plan, rank.totals);
  rank.apply(3, 1);
  EXPECT_EQ(rank.gate.begin(kGate, rank.plan, rank.totals).end, 13);
}

TEST(EpochGate, ThePipelineOfTheLastEpochCannotEndThisOne) {
  Rank rank(5, 2);
  const EpochGate::Epoch last = rank.gate.begin(kGate, rank.plan, rank.totals);
  rank.apply(10, 5);
  const EpochGate::Epoch now = rank.gate.begin(kGate, rank.plan, rank.totals);
  EXPECT_FALSE(rank.gate.open(kGate, rank.plan, last, 5, rank.totals));
  rank.apply(2, 1);
  EXPECT_EQ(rank.gate.begin(kGate, rank.plan, rank.totals).end, now.end + 2);
}

TEST(EpochGate, KerasGetsABatchInEveryEpoch) {
  Rank rank(1, 2);
  EpochGate::Epoch epoch = rank.gate.begin(kGate, rank.plan, rank.totals);
  rank.apply(50, 0);
  EXPECT_TRUE(rank.gate.open(kGate, rank.plan, epoch, 0, rank.totals));
  EXPECT_FALSE(rank.gate.open(kGate, rank.plan, epoch, 1, rank.totals));
}

TEST(EpochGate, GatesDoNotKnowEachOther) {
  Rank rank(5, 2);
  rank.gate.begin(1, rank.plan, rank.totals);
  rank.apply(4, 2);
  EXPECT_EQ(rank.gate.begin(2, rank.plan, rank.totals).end, 14);
  EXPECT_TRUE(rank.gate.due(3, 1000, rank.totals));
  rank.gate.clear();
  EXPECT_TRUE(rank.gate.due(1, 1000, rank.totals));
}

}  // namespace
}  // namespace hvd_partial

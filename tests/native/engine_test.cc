// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// Whole engines with their threads, ranks as threads of one process: what the
// sanitizer builds are for.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "transport/in_process_transport.h"

namespace hvd_partial {
namespace {

constexpr double kSilenceSeconds = 20;

class EngineTest : public ::testing::Test {
 protected:
  // Runs `body(rank, engine)` on a thread for each rank, engines connected.
  void run(int size, const std::function<void(int, Engine&)>& body) {
    InProcessFabric fabric(size);
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::vector<std::uint8_t>> addresses;
    for (int rank = 0; rank < size; ++rank) {
      engines.push_back(std::make_unique<Engine>(fabric.make(rank)));
      addresses.push_back(engines.back()->address());
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const Status status = engines[rank]->connect(addresses);
        ASSERT_TRUE(status.ok()) << status.message();
        body(rank, *engines[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static ChannelOptions options(Mode mode, std::size_t elements, const std::string& name = "c") {
    ChannelOptions options;
    options.name = name;
    options.signature = std::to_string(elements);
    options.tensors = {{DType::kInt64, elements}};
    options.member.mode = mode;
    options.average = Average::kNone;
    return options;
  }

  static std::shared_ptr<Channel> open(Engine& engine, const ChannelOptions& options) {
    std::shared_ptr<Channel> channel;
    const Status status = engine.open_channel(options, &channel);
    EXPECT_TRUE(status.ok()) << status.message();
    return channel;
  }

  // Takes everything that is there; adds to `sum`.
  static void take(Channel& channel, int available, std::vector<std::int64_t>* sum) {
    std::vector<std::int64_t> values(sum->size());
    void* tensors[] = {values.data()};
    for (int i = 0; i < available; ++i) {
      ASSERT_TRUE(channel.read(0, tensors).ok());
      ASSERT_TRUE(channel.release(1).ok());
      for (std::size_t e = 0; e < sum->size(); ++e) (*sum)[e] += values[e];
    }
  }

  static Status allreduce(Channel& channel, const std::vector<std::int64_t>& values,
                          std::vector<std::int64_t>* sum) {
    const void* tensors[] = {values.data()};
    bool skipped = false;
    if (Status status = channel.deposit(tensors, -1, &skipped); !status.ok()) return status;
    int available = 0;
    bool flushed = false;
    if (Status status = channel.wait(-1, &available, &flushed); !status.ok()) return status;
    take(channel, available, sum);
    return {};
  }

  static Status flush(Channel& channel, std::vector<std::int64_t>* sum) {
    if (Status status = channel.begin_flush(); !status.ok()) return status;
    bool flushed = false;
    while (!flushed) {
      int available = 0;
      if (Status status = channel.wait(-1, &available, &flushed); !status.ok()) return status;
      take(channel, available, sum);
    }
    return {};
  }
};

// A rank may be gone before it has even heard the number of its channel.
TEST_F(EngineTest, WhatWasDepositedIsNotLostThoughTheRankClosesAtOnce) {
  for (int repetition = 0; repetition < 30; ++repetition) {
    std::vector<std::int64_t> sum{0};
    run(2, [&](int rank, Engine& engine) {
      const auto channel = open(engine, options({ModeKind::kSync}, 1));
      const std::vector<std::int64_t> values{rank == 1 ? 7 : 5};
      if (rank == 1) {
        const void* tensors[] = {values.data()};
        bool skipped = false;
        ASSERT_TRUE(channel->deposit(tensors, -1, &skipped).ok());
      } else {
        ASSERT_TRUE(allreduce(*channel, values, &sum).ok());
        ASSERT_TRUE(flush(*channel, &sum).ok());
      }
      engine.close(kSilenceSeconds);
    });
    EXPECT_EQ(sum[0], 12);
  }
}

TEST_F(EngineTest, ExactlyOnceInEveryModeAndSize) {
  const Mode modes[] = {{ModeKind::kSync},      {ModeKind::kMajority},         {ModeKind::kSolo},
                        {ModeKind::kQuorum, 2}, {ModeKind::kDesignated, 0, 7}, {ModeKind::kAsync}};
  constexpr int kRanks = 3;
  constexpr int kSteps = 40;
  for (const std::size_t elements : {std::size_t{1}, std::size_t{40000}}) {
    for (const Mode& mode : modes) {
      SCOPED_TRACE(to_string(mode));
      std::vector<std::int64_t> deposited[kRanks];
      std::vector<std::int64_t> applied[kRanks];
      run(kRanks, [&](int rank, Engine& engine) {
        const auto channel = open(engine, options(mode, elements));
        std::mt19937 random(rank);
        deposited[rank].assign(elements, 0);
        applied[rank].assign(elements, 0);
        std::vector<std::int64_t> values(elements);
        const int steps = kSteps + rank;  // uneven
        for (int step = 0; step < steps; ++step) {
          for (auto& value : values) value = static_cast<std::int64_t>(random() % 1000);
          for (std::size_t e = 0; e < elements; ++e) deposited[rank][e] += values[e];
          ASSERT_TRUE(allreduce(*channel, values, &applied[rank]).ok());
        }
        ASSERT_TRUE(flush(*channel, &applied[rank]).ok());
        engine.close(kSilenceSeconds);
      });
      std::vector<std::int64_t> total(elements, 0);
      for (const auto& part : deposited) {
        for (std::size_t e = 0; e < elements; ++e) total[e] += part[e];
      }
      for (const auto& sum : applied) EXPECT_EQ(sum, total);
    }
  }
}

TEST_F(EngineTest, ChannelsMayBeOpenedInAnyOrderAndUsedInTurn) {
  run(4, [&](int rank, Engine& engine) {
    std::vector<std::shared_ptr<Channel>> channels(3);
    for (int i = 0; i < 3; ++i) {
      const int which = (rank + i) % 3;
      channels[which] = open(engine, options({ModeKind::kSync}, 8, std::to_string(which)));
    }
    std::vector<std::int64_t> sum(8, 0);
    for (int step = 0; step < 30; ++step) {
      for (const auto& channel : channels) {
        ASSERT_TRUE(allreduce(*channel, std::vector<std::int64_t>(8, rank), &sum).ok());
      }
    }
    EXPECT_EQ(sum[0], 30 * 3 * (0 + 1 + 2 + 3));
    engine.close(kSilenceSeconds);
  });
}

TEST_F(EngineTest, DisagreementFailsOnEveryRank) {
  run(3, [&](int rank, Engine& engine) {
    const auto channel = open(engine, options({ModeKind::kSolo}, rank == 2 ? 9 : 8));
    std::vector<std::int64_t> sum(rank == 2 ? 9 : 8, 0);
    const Status status = allreduce(*channel, sum, &sum);
    EXPECT_EQ(status.code(), ErrorCode::kMismatch);
    EXPECT_NE(status.message().find("channel 'c'"), std::string::npos) << status.message();
    engine.close(kSilenceSeconds);
  });
}

TEST_F(EngineTest, AbortReachesRanksThatWait) {
  std::atomic<int> have_round{0};
  run(3, [&](int rank, Engine& engine) {
    const auto channel = open(engine, options({ModeKind::kSync}, 8));
    std::vector<std::int64_t> sum(8, 0);
    ASSERT_TRUE(allreduce(*channel, sum, &sum).ok());
    ++have_round;
    if (rank == 1) {
      // An abort overtakes a round that is not complete everywhere.
      while (have_round < 3) std::this_thread::yield();
      engine.abort("KeyError: 'loss'");
    } else {
      const Status status = allreduce(*channel, sum, &sum);
      EXPECT_EQ(status.code(), ErrorCode::kAborted);
      EXPECT_NE(status.message().find("rank 1 ended the job: KeyError: 'loss'"), std::string::npos)
          << status.message();
    }
    engine.close(kSilenceSeconds);
  });
}

// A destroyed engine that did not close looks to the others like a crash.
TEST_F(EngineTest, EndWithoutGoodbyeIsALostPeer) {
  for (const int victim : {0, 2}) {
    InProcessFabric fabric(3);
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::vector<std::uint8_t>> addresses;
    for (int rank = 0; rank < 3; ++rank) {
      engines.push_back(std::make_unique<Engine>(fabric.make(rank)));
      addresses.push_back(engines.back()->address());
    }
    std::vector<std::shared_ptr<Channel>> channels(3);
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(engines[rank]->connect(addresses).ok());
      channels[rank] = open(*engines[rank], options({ModeKind::kSync}, 8));
    }
    std::vector<std::thread> waiting;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      waiting.emplace_back([&, rank] {
        std::vector<std::int64_t> sum(8, 0);
        const Status status = allreduce(*channels[rank], sum, &sum);
        EXPECT_EQ(status.code(), ErrorCode::kPeerLost);
        EXPECT_NE(status.message().find("rank " + std::to_string(victim) + " was lost"),
                  std::string::npos)
            << status.message();
      });
    }
    channels[victim].reset();
    engines[victim].reset();
    for (std::thread& thread : waiting) thread.join();
    for (auto& engine : engines) {
      if (engine != nullptr) engine->close(kSilenceSeconds);
    }
  }
}

TEST_F(EngineTest, RanksThatAreDoneLetTheOthersGoOn) {
  run(3, [&](int rank, Engine& engine) {
    const auto channel = open(engine, options({ModeKind::kSync}, 8));
    std::vector<std::int64_t> sum(8, 0);
    for (int step = 0; step < 5 + 20 * rank; ++step) {
      ASSERT_TRUE(allreduce(*channel, std::vector<std::int64_t>(8, 1), &sum).ok());
    }
    engine.close(kSilenceSeconds);  // rank 0 first, and it coordinates
    if (rank == 2) {
      EXPECT_EQ(sum[0], 5 * 3 + 20 * 2 + 20);
    }
  });
}

TEST_F(EngineTest, ModeChangesUnderWay) {
  constexpr int kSteps = 60;
  std::vector<std::int64_t> applied[4];
  run(4, [&](int rank, Engine& engine) {
    const auto channel = open(engine, options({ModeKind::kSync}, 8));
    applied[rank].assign(8, 0);
    for (int step = 0; step < kSteps; ++step) {
      if (step % 7 == rank) {
        const Mode modes[] = {{ModeKind::kSolo}, {ModeKind::kSync}, {ModeKind::kQuorum, 3}};
        ASSERT_TRUE(channel->set_mode(modes[step % 3]).ok());
      }
      ASSERT_TRUE(allreduce(*channel, std::vector<std::int64_t>(8, 1), &applied[rank]).ok());
    }
    ASSERT_TRUE(flush(*channel, &applied[rank]).ok());
    engine.close(kSilenceSeconds);
  });
  for (const auto& sum : applied) EXPECT_EQ(sum[0], 4 * kSteps);
}

// What another rank does after a flush is not part of it.
TEST_F(EngineTest, FlushGivesTheSameToAllThoughSomeGoOn) {
  std::atomic<bool> gone_on{false};
  run(2, [&](int rank, Engine& engine) {
    const auto channel = open(engine, options({ModeKind::kSolo}, 8));
    std::vector<std::int64_t> sum(8, 0);
    ASSERT_TRUE(channel->begin_flush().ok());
    if (rank == 0) {
      int available = 0;
      bool flushed = false;
      ASSERT_TRUE(channel->wait(-1, &available, &flushed).ok());
      EXPECT_TRUE(flushed);
      ASSERT_TRUE(allreduce(*channel, std::vector<std::int64_t>(8, 1), &sum).ok());
      gone_on = true;
    } else {
      while (!gone_on || channel->stats().lag == 0) std::this_thread::yield();
      int available = 0;
      bool flushed = false;
      ASSERT_TRUE(channel->wait(-1, &available, &flushed).ok());
      EXPECT_TRUE(flushed);
      EXPECT_EQ(available, 0);
    }
    ASSERT_TRUE(flush(*channel, &sum).ok());
    EXPECT_EQ(sum[0], 1);
    engine.close(kSilenceSeconds);
  });
}

// Where only the newest result is kept, a round without contributions takes
// the place of none.
TEST_F(EngineTest, NullRoundLeavesTheNewestResult) {
  run(2, [&](int rank, Engine& engine) {
    ChannelOptions latest = options({ModeKind::kSolo}, 8);
    latest.member.latest_only = true;
    const auto channel = open(engine, latest);
    std::vector<std::int64_t> sum(8, 0);
    if (rank == 1) {
      ASSERT_TRUE(allreduce(*channel, std::vector<std::int64_t>(8, 5), &sum).ok());
    }
    while (channel->stats().rounds < 1) std::this_thread::yield();
    ASSERT_TRUE(channel->begin_flush().ok());
    while (channel->stats().flushes < 1) std::this_thread::yield();
    bool flushed = false;
    while (!flushed) {
      int available = 0;
      ASSERT_TRUE(channel->wait(-1, &available, &flushed).ok());
      take(*channel, available, &sum);
    }
    EXPECT_EQ(sum[0], 5);
    engine.close(kSilenceSeconds);
  });
}

TEST_F(EngineTest, NotifyTellsOnce) {
  run(2, [&](int rank, Engine& engine) {
    const auto channel = open(engine, options({ModeKind::kSync}, 8));
    for (int step = 0; step < 20; ++step) {
      const std::vector<std::int64_t> values(8, rank);
      const void* tensors[] = {values.data()};
      bool skipped = false;
      ASSERT_TRUE(channel->deposit(tensors, -1, &skipped).ok());
      std::mutex mutex;
      std::condition_variable told;
      int times = 0;
      ASSERT_TRUE(channel
                      ->notify([&] {
                        const std::lock_guard<std::mutex> lock(mutex);
                        ++times;
                        told.notify_one();
                      })
                      .ok());
      std::unique_lock<std::mutex> lock(mutex);
      told.wait(lock, [&] { return times > 0; });
      lock.unlock();
      std::vector<std::int64_t> sum(8, 0);
      take(*channel, 1, &sum);
      EXPECT_EQ(sum[0], 1);
      EXPECT_EQ(times, 1);
    }
    engine.close(kSilenceSeconds);
  });
}

TEST_F(EngineTest, MisuseIsAnErrorNotACrash) {
  std::atomic<bool> tried{false};
  run(2, [&](int rank, Engine& engine) {
    const auto channel = open(engine, options({ModeKind::kSolo}, 8));
    if (rank == 1) {
      while (!tried) std::this_thread::yield();  // the flush below cannot end before
      ASSERT_TRUE(channel->leave().ok());
      engine.close(kSilenceSeconds);
      return;
    }
    EXPECT_EQ(channel->release(1).code(), ErrorCode::kInvalidArgument);
    const RoundHeader* header = nullptr;
    EXPECT_EQ(channel->header(0, &header).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(channel->set_mode({ModeKind::kQuorum, 3}).code(), ErrorCode::kInvalidArgument);
    ASSERT_TRUE(channel->begin_flush().ok());
    EXPECT_EQ(channel->begin_flush().code(), ErrorCode::kInvalidArgument);
    std::vector<std::int64_t> sum(8, 0);
    EXPECT_EQ(allreduce(*channel, sum, &sum).code(), ErrorCode::kInvalidArgument);
    tried = true;
    ASSERT_TRUE(channel->leave().ok());
    EXPECT_EQ(allreduce(*channel, sum, &sum).code(), ErrorCode::kInvalidArgument);
    std::shared_ptr<Channel> other;
    EXPECT_EQ(engine.open_channel(options({ModeKind::kSolo}, 9), &other).code(),
              ErrorCode::kInvalidArgument);
    engine.close(kSilenceSeconds);
    EXPECT_EQ(engine.open_channel(options({ModeKind::kSolo}, 9, "new"), &other).code(),
              ErrorCode::kNotConnected);
  });
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// Whole engines with their threads: the lines they say, and the records they leave.

#include "engine/diagnosis.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/flight_signal.h"
#include "transport/in_process_transport.h"

namespace hvd_partial {
namespace {

constexpr double kSilenceSeconds = 20;
constexpr double kWarningSeconds = 0.2;
constexpr double kDeadlineSeconds = 30;

class DiagnosisTest : public ::testing::Test {
 protected:
  DiagnosisTest() {
    std::string name = (std::filesystem::temp_directory_path() / "hvd_partial-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~DiagnosisTest() override { std::filesystem::remove_all(folder_); }

  void run(int size, const std::function<void(int, Engine&)>& body) {
    InProcessFabric fabric(size);
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::vector<std::uint8_t>> addresses;
    for (int rank = 0; rank < size; ++rank) {
      engines.push_back(std::make_unique<Engine>(fabric.make(rank)));
      addresses.push_back(engines.back()->address());
      notices_.push_back(std::make_shared<Notices>());
      DiagnosisOptions options{kWarningSeconds, folder_, "test", notices_.back()};
      ASSERT_TRUE(engines.back()->set_diagnosis(options, 0).ok());
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        ASSERT_TRUE(engines[rank]->connect(addresses).ok());
        body(rank, *engines[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static std::shared_ptr<Channel> open(Engine& engine, Mode mode, int max_lag = 8) {
    ChannelOptions options;
    options.name = "c";
    options.signature = "same";
    options.tensors = {{DType::kInt64, 4}};
    options.member.mode = mode;
    options.member.max_lag = max_lag;
    options.average = Average::kNone;
    std::shared_ptr<Channel> channel;
    EXPECT_TRUE(engine.open_channel(options, &channel).ok());
    return channel;
  }

  static Status allreduce(Channel& channel) {
    const std::vector<std::int64_t> values(4, 1);
    const void* tensors[] = {values.data()};
    bool skipped = false, flushed = false;
    int available = 0;
    if (Status status = channel.deposit(tensors, -1, &skipped); !status.ok()) return status;
    if (Status status = channel.wait(-1, &available, &flushed); !status.ok()) return status;
    return channel.release(available);
  }

  std::string next_line(int rank) {
    Notices::Notice notice;
    return notices_[rank]->take(kDeadlineSeconds, &notice) == Notices::Taken::kNotice
               ? notice.text
               : std::string("none");
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  std::vector<std::string> records() const {
    std::vector<std::string> texts;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      texts.push_back(text.str());
    }
    return texts;
  }

  std::string folder_;
  std::vector<std::shared_ptr<Notices>> notices_;
};

TEST_F(DiagnosisTest, RankThatDoesNotCallIsNamedOnceByRankZero) {
  std::atomic<bool> said{false};
  run(3, [&](int rank, Engine& engine) {
    const auto channel = open(engine, {ModeKind::kSync});
    ASSERT_TRUE(allreduce(*channel).ok());
    std::thread reader;
    if (rank == 0) {
      reader = std::thread([&] {
        const std::string line = next_line(0);
        EXPECT_TRUE(has(line, "rank 0: channel 'c', round 1 (sync): ")) << line;
        EXPECT_TRUE(has(line, "rank 2 (last called ")) << line;
        said = true;
      });
    }
    if (rank == 2) {
      while (!said) std::this_thread::yield();
    }
    ASSERT_TRUE(allreduce(*channel).ok());
    if (reader.joinable()) reader.join();
    engine.close(kSilenceSeconds);
  });
  const std::string over = next_line(0);
  EXPECT_TRUE(has(over, "goes on after ")) << over;
  EXPECT_EQ(next_line(0), "none") << "and nothing more";
  EXPECT_EQ(next_line(1), "none") << "rank 0 has told it";
  EXPECT_EQ(next_line(2), "none");
  EXPECT_TRUE(records().empty());
}

TEST_F(DiagnosisTest, FullRingIsNamed) {
  std::atomic<bool> said{false};
  run(2, [&](int rank, Engine& engine) {
    const auto channel = open(engine, {ModeKind::kSolo}, /*max_lag=*/1);
    std::thread reader;
    if (rank == 0) {
      reader = std::thread([&] {
        const std::string line = next_line(0);
        EXPECT_TRUE(has(line, "round 1 (solo): ")) << line;
        EXPECT_TRUE(has(line, "held by rank 1 (its ring is full")) << line;
        said = true;
      });
      ASSERT_TRUE(allreduce(*channel).ok());
      ASSERT_TRUE(allreduce(*channel).ok());  // rank 1 has no room for it
    } else {
      while (!said) std::this_thread::yield();
      ASSERT_TRUE(channel->release(1).ok());
    }
    if (reader.joinable()) reader.join();
    engine.close(kSilenceSeconds);
  });
  EXPECT_TRUE(has(next_line(0), "goes on after "));
}

TEST_F(DiagnosisTest, FailureLeavesRecordsAndItsTextNamesThem) {
  run(3, [&](int rank, Engine& engine) {
    const auto channel = open(engine, {ModeKind::kSync});
    ASSERT_TRUE(allreduce(*channel).ok());
    if (rank == 1) engine.abort("no \"space\"\n left");
    Status status;
    while ((status = allreduce(*channel)).ok()) {
    }
    EXPECT_EQ(status.code(), ErrorCode::kAborted);
    EXPECT_TRUE(has(status.message(), "; flight record: " + folder_ + "/hvd_partial-"))
        << status.message();
    EXPECT_TRUE(has(status.message(), "-rank" + std::to_string(rank) + "-pid")) << status.message();
    engine.close(kSilenceSeconds);
  });
  const auto texts = records();
  ASSERT_EQ(texts.size(), 3u);
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, R"(no \"space\"\u000a left)")) << text;
    EXPECT_TRUE(has(text, R"("event":"publish")")) << text;
    EXPECT_TRUE(has(text, R"("line":"channel","name":"c","local":0,"answers":true)")) << text;
  }
}

std::atomic<int> theirs{0};
void their_handler(int) { ++theirs; }

TEST_F(DiagnosisTest, SignalWritesARecordAndThePreviousHandlerRuns) {
  struct sigaction previous{};
  previous.sa_handler = their_handler;
  sigemptyset(&previous.sa_mask);
  ASSERT_EQ(::sigaction(SIGUSR1, &previous, nullptr), 0);
  std::atomic<int> acted{0};
  const auto act = [&](const std::string& name) {
    EXPECT_EQ(name, "SIGUSR1");
    ++acted;
  };
  Status status;
  for (int round = 1; round <= 2; ++round) {  // a second watch chains no second time
    auto watch = FlightSignal::watch(SIGUSR1, act, &status);
    ASSERT_NE(watch, nullptr) << status.message();
    ASSERT_EQ(::raise(SIGUSR1), 0);
    while (acted < round) std::this_thread::yield();
    EXPECT_EQ(theirs, round);
  }
  ASSERT_EQ(::raise(SIGUSR1), 0);  // no watch: harmless
  EXPECT_EQ(theirs, 3);
  EXPECT_EQ(acted, 2);
  EXPECT_EQ(FlightSignal::watch(SIGKILL, act, &status), nullptr);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// I7 for what comes over the wire: a real engine whose peer is played by the
// test, byte by byte. Whatever the peer says wrong, the engine's user gets an
// error that names the peer and what was wrong; nothing crashes, nothing hangs.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/allreduce.h"
#include "collective/tensor_layout.h"
#include "engine/engine.h"
#include "engine/round_header.h"
#include "protocol/messages.h"
#include "transport/in_process_transport.h"

namespace hvd_partial {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr double kPatience = 20;  // seconds; what takes longer hangs
constexpr std::size_t kElements = 4;

Bytes wire(const Message& message) {
  Bytes bytes;
  encode(message, &bytes);
  return bytes;
}

// An engine with one channel "c", of two ranks; the other one is the test.
class BadPeer {
 public:
  explicit BadPeer(int engine_rank) : engine_rank_(engine_rank), fabric_(2) {
    engine_ = std::make_unique<Engine>(fabric_.make(engine_rank));
    peer_ = fabric_.make(1 - engine_rank);
    std::vector<Bytes> addresses(2);
    addresses[static_cast<std::size_t>(engine_rank)] = engine_->address();
    addresses[static_cast<std::size_t>(1 - engine_rank)] = peer_->address();
    EXPECT_TRUE(engine_->connect(addresses).ok());
    EXPECT_TRUE(peer_->connect(addresses).ok());
    ChannelOptions options;
    options.name = "c";
    options.signature = "same";
    options.tensors = {{DType::kFloat64, kElements}};
    options.member.mode = Mode{ModeKind::kSync, 0, 0};
    EXPECT_TRUE(engine_->open_channel(options, &channel_).ok());
    say(engine_rank == 0 ? Message(OpenChannel{"c", "same", options.member.mode, -1})
                         : Message(ChannelOpened{"c", 0}));
  }
  ~BadPeer() { engine_->close(0); }
  BadPeer(const BadPeer&) = delete;
  BadPeer& operator=(const BadPeer&) = delete;

  void say(const Message& message) { say(wire(message)); }
  void say(const Bytes& bytes) {
    peer_->send_control(engine_rank_, bytes.data(), bytes.size());
    peer_->progress();
  }

  void deposit() {
    const std::vector<double> values(kElements, 1.0);
    const void* tensors[] = {values.data()};
    bool skipped = false;
    // It may have failed by now.
    (void)channel_->deposit(tensors, -1, &skipped);
  }

  // How the engine's user fares who waits for a round.
  Status wait() {
    int available = 0;
    bool flushed = false;
    return channel_->wait(kPatience, &available, &flushed);
  }

  // The peer's part of round 0, with these numbers in the header.
  void reduce(double contributions, double weight, double seconds, double skipped) {
    const TensorLayout layout(
        {{DType::kFloat64, kElements}, {DType::kFloat64, HeaderBlock::elements(2)}});
    Bytes buffer(layout.bytes() + TensorLayout::kAlignment), scratch(buffer.size());
    auto* block = reinterpret_cast<double*>(buffer.data() + layout.offset(1));
    double* mine = block + HeaderBlock::kNumbersPerRank * (1 - engine_rank_);
    mine[0] = contributions;
    mine[1] = weight;
    mine[2] = seconds;
    mine[3] = skipped;
    Allreduce allreduce(peer_.get(), &layout, scratch.data());
    allreduce.start({0, 1}, 0, buffer.data());
    while (!allreduce.step()) peer_->progress();
    EXPECT_TRUE(allreduce.status().ok()) << allreduce.status().message();
  }

 private:
  const int engine_rank_;
  InProcessFabric fabric_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Transport> peer_;
  std::shared_ptr<Channel> channel_;
};

void expect_refused(int engine_rank, const Bytes& bytes, const std::string& part) {
  SCOPED_TRACE(part);
  BadPeer job(engine_rank);
  job.deposit();
  job.say(bytes);
  const Status status = job.wait();
  EXPECT_EQ(status.code(), ErrorCode::kInternal);
  EXPECT_NE(status.message().find("rank " + std::to_string(1 - engine_rank)), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(BadPeer, TellsTheCoordinatorNonsense) {
  const Mode mode{ModeKind::kSync, 0, 0};
  expect_refused(0, {}, "of 0 bytes, which cannot be read");
  expect_refused(0, {1}, "cannot be read");
  expect_refused(0, Bytes(100, 0xFF), "of 100 bytes");
  Bytes other_version = wire(Goodbye{});
  ++other_version[0];
  expect_refused(0, other_version, "same version of hvd_partial");
  expect_refused(0, wire(Activate{}), "Activate) that makes no sense: only rank 0 sends it");
  expect_refused(0, wire(AllGone{}), "only rank 0 sends it");
  expect_refused(0, wire(Call{9, 0, true, 0}), "there is no channel 9");
  expect_refused(0, wire(Call{0, 5, true, 0}), "round 5 of channel 'c', whose next one is 0");
  expect_refused(0, wire(Flush{3}), "there is no channel 3");
  expect_refused(0, wire(Leave{0xFFFE, true}), "there is no channel 65534");
  expect_refused(0, wire(SetMode{0, {ModeKind::kQuorum, 3, 0}}), "does not fit 2 ranks");
  expect_refused(0, wire(SetMode{7, mode}), "there is no channel 7");
  expect_refused(0, wire(OpenChannel{"d", "s", {ModeKind::kQuorum, 3, 0}, 0}), "quorum(3)");
  expect_refused(0, wire(OpenChannel{"c", "same", mode, 0}), "opened channel 'c' before");
}

TEST(BadPeer, TellsARankNonsense) {
  const Mode mode{ModeKind::kSync, 0, 0};
  expect_refused(1, Bytes(3, 0), "cannot be read");
  expect_refused(1, wire(Goodbye{}), "only rank 0 gets it");
  expect_refused(1, wire(Activate{4, 0, mode, false}), "channel 4 is not open here");
  expect_refused(1, wire(Activate{0, 3, mode, false}), "round 3 was activated out of turn");
  expect_refused(1, wire(Activate{0, 0, {ModeKind::kQuorum, 3, 0}, false}), "does not fit 2");
  expect_refused(1, wire(Members{4, {0x3}, {}, false}), "channel 4 is not open here");
  expect_refused(1, wire(Members{0, {0x7}, {}, false}), "ranks that do not exist");
  expect_refused(1, wire(Members{0, {0x1}, {}, false}), "leaves out the rank");
  expect_refused(1, wire(Members{0, {}, {}, false}), "0 words of ranks");
  expect_refused(1, wire(ChannelOpened{"c", 0}), "there is a channel 0 already");
  expect_refused(1, wire(ChannelOpened{"d", 1}), "there is no channel 'd' here");
  expect_refused(1, wire(ChannelRejected{"d", "no"}), "there is no channel 'd' here");
  expect_refused(1, wire(PeerLost{2, "no"}), "it names rank 2 of 2");
  expect_refused(1, wire(Aborted{7, "no"}), "it names rank 7 of 2");
}

// Every cut and every changed byte of a message that is right: the engine goes
// on waiting, gets a round, or says what is wrong.
TEST(BadPeer, DamagedMessagesNeverCrash) {
  const Bytes good = wire(Call{0, 0, true, 0.5});
  int refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const std::uint8_t change : {0x01, 0x80, 0xFF}) {
      Bytes damaged = good;
      damaged[i] ^= change;
      BadPeer job(0);
      job.say(damaged);
      job.say(Abort{"the end"});
      job.deposit();
      const Status status = job.wait();
      EXPECT_FALSE(status.ok());
      refused += status.code() == ErrorCode::kInternal ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(BadPeer, HeaderNumbersThatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  const struct {
    double contributions, weight, seconds, skipped;
  } cases[] = {{nan, 1, 0, 0},  {infinite, 1, 0, 0}, {-1, 1, 0, 0},       {0.5, 1, 0, 0},
               {1e10, 1, 0, 0}, {1, nan, 0, 0},      {1, infinite, 0, 0}, {1, 1, nan, 0},
               {1, 1, -1, 0},   {1, 1, 0, nan},      {1, 1, 0, -2},       {1, 1, 0, 2147483647.0}};
  for (const auto& bad : cases) {
    BadPeer job(1);
    job.deposit();
    job.say(Members{0, {0x3}, {}, false});
    job.say(Activate{0, 0, Mode{ModeKind::kSync, 0, 0}, false});
    job.reduce(bad.contributions, bad.weight, bad.seconds, bad.skipped);
    const Status status = job.wait();
    EXPECT_EQ(status.code(), ErrorCode::kInternal);
    for (const char* part : {"channel 'c'", "round 0", "numbers of rank 0"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  }
  BadPeer good(1);
  good.deposit();
  good.say(Members{0, {0x3}, {}, false});
  good.say(Activate{0, 0, Mode{ModeKind::kSync, 0, 0}, false});
  good.reduce(1, 1, 0.1, 0);
  EXPECT_TRUE(good.wait().ok());
}

TEST(BadPeer, ChannelsThatCannotBeSentAreRefusedAtOnce) {
  InProcessFabric fabric(1);
  Engine engine(fabric.make(0));
  ASSERT_TRUE(engine.connect({engine.address()}).ok());
  const auto open = [&](std::size_t name, std::size_t signature) {
    ChannelOptions options;
    options.name = std::string(name, 'n');
    options.signature = std::string(signature, 's');
    std::shared_ptr<Channel> channel;
    return engine.open_channel(options, &channel);
  };
  EXPECT_TRUE(open(kMaxNameBytes, kMaxSignatureBytes).ok());
  for (const Status& status : {open(kMaxNameBytes + 1, 1), open(1, kMaxSignatureBytes + 1)}) {
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(status.message().find("that can be sent"), std::string::npos) << status.message();
  }
  engine.close(1);
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/channel.h"
#include "engine/progress.h"
#include "transport/in_process_transport.h"

namespace hvd_partial {
namespace {

constexpr int kRanks = 3;
constexpr int kElements = 3;
constexpr double kSecondsPerTick = 0.5;
constexpr int kMostTurns = 10000;  // rounds of a dozen turns each

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::abort();
}

class ScriptedClock final : public Clock {
 public:
  double now() const override { return now_; }
  void pass(double seconds) { now_ += seconds; }

 private:
  double now_ = 1;
};

class Script {
 public:
  Script(const std::uint8_t* bytes, std::size_t size) : next_(bytes), end_(bytes + size) {}

  bool ended() const { return next_ == end_; }
  std::uint8_t byte() { return ended() ? 0 : *next_++; }
  std::vector<std::uint8_t> bytes() {
    const std::size_t wanted = byte() + std::size_t{256} * byte();
    const std::size_t size = std::min<std::size_t>(wanted, static_cast<std::size_t>(end_ - next_));
    next_ += size;
    return std::vector<std::uint8_t>(next_ - size, next_);
  }

 private:
  const std::uint8_t* next_;
  const std::uint8_t* end_;
};

class Job {
 public:
  explicit Job(std::uint8_t variant) : fabric_(kRanks) {
    std::vector<std::vector<std::uint8_t>> addresses;
    for (int rank = 0; rank < kRanks; ++rank) {
      transports_.push_back(fabric_.make(rank));
      addresses.push_back(transports_.back()->address());
    }
    for (const auto& transport : transports_) {
      if (!transport->connect(addresses).ok()) give_up("the fabric connects");
      ranks_.push_back(std::make_unique<Progress>(transport.get(), &clock_));
    }
    ChannelOptions options;
    options.name = "c";
    options.signature = "same";
    options.tensors = {{DType::kFloat32, kElements}};
    options.member.mode.kind = static_cast<ModeKind>(variant % 6);
    options.member.mode.quorum = 2;
    options.member.max_lag = 1 + variant / 6 % 3;
    options.member.latest_only = variant / 18 % 2 == 1;
    options.grace_seconds = variant / 36 % 2 == 0 ? 0 : 0.1;
    for (const auto& rank : ranks_) {
      std::shared_ptr<Channel> channel;
      if (!rank->open_channel(options, &channel).ok()) give_up("a channel can be opened");
      channels_.push_back(std::move(channel));
    }
  }

  ~Job() {
    // Channels go first, and transfers of theirs may be under way.
    for (const auto& transport : transports_) transport->close();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Until nothing moves any more.
  void rest() {
    for (int turn = 0; turn < kMostTurns; ++turn) {
      bool moved = false;
      for (const auto& rank : ranks_) moved |= rank->step();
      if (!moved) return;
    }
    give_up("engines come to rest");
  }

  void say(int from, int to, const std::vector<std::uint8_t>& bytes) {
    const bool listens = !progress(to).failure().failed();
    transports_[static_cast<std::size_t>(from)]->send_control(to, bytes.data(), bytes.size());
    rest();
    const bool readable = decode(bytes.data(), bytes.size()).has_value();
    const bool allowed = readable && (from == 0 || to == 0);
    if (listens && !allowed && !progress(to).failure().failed()) {
      give_up("what cannot be right ends in an error");
    }
  }

  void deposit(int rank) {
    const float values[kElements] = {1, 2, 3};
    const void* tensors[] = {values};
    bool skipped = false;
    (void)channel(rank).deposit(tensors, -1, &skipped);
  }

  void take(int rank) {
    int available = 0;
    bool flushed = false;
    if (!channel(rank).poll(&available, &flushed)) return;
    float values[kElements];
    void* tensors[] = {values};
    for (int i = 0; i < available; ++i) {
      if (!channel(rank).read(0, tensors).ok() || !channel(rank).release(1).ok()) return;
    }
  }

  void flush(int rank) { (void)channel(rank).begin_flush(); }
  void leave(int rank) { (void)channel(rank).leave(); }
  void goodbye(int rank) {
    leave(rank);
    progress(rank).post(Goodbye{});
  }
  void pass_time() { clock_.pass(kSecondsPerTick); }

 private:
  Progress& progress(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Channel& channel(int rank) { return *channels_[static_cast<std::size_t>(rank)]; }

  ScriptedClock clock_;
  InProcessFabric fabric_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Progress>> ranks_;
  std::vector<std::shared_ptr<Channel>> channels_;
};

}  // namespace

void run_job(const std::uint8_t* bytes, std::size_t size) {
  Script script(bytes, size);
  Job job(script.byte());
  job.rest();
  while (!script.ended()) {
    const int what = script.byte() % 7;
    const int rank = script.byte() % kRanks;
    switch (what) {
      case 0: {
        const int to = (rank + 1 + script.byte() % (kRanks - 1)) % kRanks;
        job.say(rank, to, script.bytes());
        break;
      }
      case 1:
        job.deposit(rank);
        break;
      case 2:
        job.take(rank);
        break;
      case 3:
        job.flush(rank);
        break;
      case 4:
        job.leave(rank);
        break;
      case 5:
        job.goodbye(rank);
        break;
      default:
        job.pass_time();
    }
    job.rest();
  }
}

JobScript& JobScript::act(std::uint8_t what, int rank) {
  bytes_.push_back(what);
  bytes_.push_back(static_cast<std::uint8_t>(rank));
  return *this;
}

JobScript& JobScript::say(int from, int to, const Message& message) {
  act(0, from);
  bytes_.push_back(static_cast<std::uint8_t>((to - from - 1 + kRanks) % kRanks));
  std::vector<std::uint8_t> wire;
  encode(message, &wire);
  bytes_.push_back(static_cast<std::uint8_t>(wire.size() % 256));
  bytes_.push_back(static_cast<std::uint8_t>(wire.size() / 256));
  bytes_.insert(bytes_.end(), wire.begin(), wire.end());
  return *this;
}

}  // namespace hvd_partial

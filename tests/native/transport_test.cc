// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What every transport promises (transport.h), for the in-process one and for
// UCX with several ranks in this process, one thread each.

#include "transport/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/control_header.h"
#include "transport/in_process_transport.h"
#include "transport/interfaces.h"
#include "transport/job_secret.h"
#include "transport/parker.h"
#include "transport/ucx_log.h"
#include "transport/ucx_transport.h"

namespace hvd_partial {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr double kPatience = 20;  // seconds; what takes longer hangs

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  std::uint32_t state = seed * 2654435761u + 1;
  for (auto& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return bytes;
}

// Keeps what it is told.
class Recorder : public TransportListener {
 public:
  struct Message {
    int from;
    Bytes data;
  };
  void on_control(int from, const std::uint8_t* data, std::size_t size) override {
    messages.push_back({from, Bytes(data, data + size)});
  }
  void on_peer_lost(int peer, const std::string& reason) override {
    EXPECT_FALSE(reason.empty());
    lost.push_back(peer);
  }

  std::vector<Message> messages;
  std::vector<int> lost;
};

// Runs one rank until `done`, parking in between as the engine does.
bool run_until(Transport* transport, const std::function<bool()>& done) {
  const double deadline = now() + kPatience;
  while (!done()) {
    if (now() > deadline) return false;
    if (!transport->progress() && !done()) transport->wait(0.2);
  }
  return true;
}

enum class Kind { kInProcess, kInProcessEager, kUcx, kUcxTcp };

std::string kind_name(const ::testing::TestParamInfo<Kind>& info) {
  switch (info.param) {
    case Kind::kInProcess:
      return "InProcess";
    case Kind::kInProcessEager:
      return "InProcessEager";
    case Kind::kUcx:
      return "Ucx";
    case Kind::kUcxTcp:
      return "UcxTcp";
  }
  return "";
}

class TransportTest : public ::testing::TestWithParam<Kind> {
 protected:
  ~TransportTest() override {
    ranks_.clear();
    if (GetParam() == Kind::kUcxTcp) unsetenv("UCX_TLS");
  }

  void make(int size) {
    if (GetParam() == Kind::kUcxTcp) setenv("UCX_TLS", "tcp", 1);
    fabric_ = std::make_unique<InProcessFabric>(size);
    if (GetParam() == Kind::kInProcessEager) fabric_->set_eager_bytes(4096);
    for (int rank = 0; rank < size; ++rank) {
      Status status;
      if (GetParam() == Kind::kUcx || GetParam() == Kind::kUcxTcp) {
        ranks_.push_back(make_ucx_transport(rank, size, &status));
      } else {
        ranks_.push_back(fabric_->make(rank));
      }
      ASSERT_NE(ranks_.back(), nullptr) << status.message();
    }
  }

  std::vector<Bytes> addresses() const {
    std::vector<Bytes> all;
    for (const auto& rank : ranks_) all.push_back(rank->address());
    return all;
  }

  void connect(int size) {
    ASSERT_NO_FATAL_FAILURE(make(size));
    const std::vector<Bytes> all = addresses();
    recorders_.resize(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      at(rank)->set_listener(&recorder(rank));
      const Status status = at(rank)->connect(all);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  Transport* at(int rank) { return ranks_[static_cast<std::size_t>(rank)].get(); }
  Recorder& recorder(int rank) { return recorders_[static_cast<std::size_t>(rank)]; }

  // Has rank 0 and every other exchange a message: until then a connection is
  // not there yet, and needs both sides to become so.
  void greet() {
    const std::uint8_t hello = 0;
    const std::size_t others = ranks_.size() - 1;
    for (std::size_t rank = 1; rank <= others; ++rank) {
      ranks_[rank]->send_control(0, &hello, 1);
      ranks_[0]->send_control(static_cast<int>(rank), &hello, 1);
    }
    ASSERT_TRUE(progress_all_until([&] {
      for (std::size_t rank = 1; rank <= others; ++rank) {
        if (recorders_[rank].messages.empty()) return false;
      }
      return recorders_[0].messages.size() == others;
    }));
    for (auto& recorder : recorders_) recorder.messages.clear();
  }

  // `body(rank)` on a thread of its own for each rank.
  void on_all(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back(body, static_cast<int>(rank));
    }
    for (auto& thread : threads) thread.join();
  }

  // By turns on this thread.
  bool progress_all_until(const std::function<bool()>& done) {
    const double deadline = now() + kPatience;
    while (!done()) {
      if (now() > deadline) return false;
      for (const auto& rank : ranks_) rank->progress();
    }
    return true;
  }

  std::unique_ptr<InProcessFabric> fabric_;
  std::vector<std::unique_ptr<Transport>> ranks_;
  std::vector<Recorder> recorders_;
};

INSTANTIATE_TEST_SUITE_P(All, TransportTest,
                         ::testing::Values(Kind::kInProcess, Kind::kInProcessEager, Kind::kUcx,
                                           Kind::kUcxTcp),
                         kind_name);

TEST_P(TransportTest, KnowsItsPlace) {
  ASSERT_NO_FATAL_FAILURE(make(3));
  EXPECT_EQ(at(2)->rank(), 2);
  EXPECT_EQ(at(2)->size(), 3);
}

TEST_P(TransportTest, ControlMessagesOfAllSizesArriveInOrder) {
  ASSERT_NO_FATAL_FAILURE(connect(3));
  std::vector<Bytes> sent;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{8000}, std::size_t{8192},
        std::size_t{70000}, Transport::kMaxControlBytes, std::size_t{3}}) {
    sent.push_back(pattern(size, static_cast<unsigned>(size)));
  }
  for (unsigned i = 0; i < 500; ++i) sent.push_back(pattern(i * 37 % 3000, i));

  on_all([&](int rank) {
    const std::vector<int> targets = rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{0};
    for (const Bytes& message : sent) {
      for (const int to : targets) at(rank)->send_control(to, message.data(), message.size());
      at(rank)->progress();
    }
    const std::size_t expected = rank == 0 ? 2 * sent.size() : sent.size();
    EXPECT_TRUE(run_until(at(rank), [&] { return recorder(rank).messages.size() >= expected; }));
    EXPECT_EQ(at(rank)->counters().control_messages_sent, targets.size() * sent.size());
  });
  for (int rank = 0; rank < 3; ++rank) {
    for (int from = 0; from < 3; ++from) {
      std::size_t next = 0;
      for (const auto& message : recorder(rank).messages) {
        if (message.from != from) continue;
        ASSERT_LT(next, sent.size());
        ASSERT_EQ(message.data, sent[next++]);
      }
      const bool pair = from != rank && (from == 0 || rank == 0);
      EXPECT_EQ(next, pair ? sent.size() : 0u);
    }
  }
}

TEST_P(TransportTest, ControlToOneselfComesWithALaterProgress) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  const Bytes message = pattern(50, 1);
  at(0)->send_control(0, message.data(), message.size());
  EXPECT_TRUE(recorder(0).messages.empty());
  ASSERT_TRUE(run_until(at(0), [&] { return !recorder(0).messages.empty(); }));
  EXPECT_EQ(recorder(0).messages[0].from, 0);
  EXPECT_EQ(recorder(0).messages[0].data, message);
}

TEST_P(TransportTest, MessagesSentFromACallbackGoOut) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  // Answers each message until there were ten.
  struct Echo : Recorder {
    Transport* transport = nullptr;
    void on_control(int from, const std::uint8_t* data, std::size_t size) override {
      Recorder::on_control(from, data, size);
      if (data[0] >= 10) return;
      const std::uint8_t next = static_cast<std::uint8_t>(data[0] + 1);
      transport->send_control(from, &next, 1);
    }
  };
  Echo echoes[2];
  for (int rank = 0; rank < 2; ++rank) {
    echoes[rank].transport = at(rank);
    at(rank)->set_listener(&echoes[rank]);
  }
  const std::uint8_t first = 0;
  at(0)->send_control(1, &first, 1);
  EXPECT_TRUE(progress_all_until([&] { return echoes[1].messages.size() == 6; }));
  EXPECT_EQ(echoes[0].messages.size(), 5u);
}

TEST_P(TransportTest, NothingIsLostBeforeThePeerIsReady) {
  ASSERT_NO_FATAL_FAILURE(make(2));
  const std::vector<Bytes> all = addresses();
  ASSERT_TRUE(at(0)->connect(all).ok());
  const Bytes message = pattern(20, 4);
  const Bytes bulk = pattern(1000, 5);
  Completion sent;
  at(0)->send_control(1, message.data(), message.size());
  at(0)->send(1, 9, bulk.data(), bulk.size(), &sent);
  for (int i = 0; i < 100; ++i) {
    at(0)->progress();
    at(1)->progress();
  }
  ASSERT_TRUE(at(1)->connect(all).ok());
  for (int i = 0; i < 100; ++i) {  // there is no listener yet
    at(0)->progress();
    at(1)->progress();
  }
  Recorder recorder;
  at(1)->set_listener(&recorder);
  Bytes buffer(bulk.size());
  Completion received;
  at(1)->recv(0, 9, buffer.data(), buffer.size(), &received);
  EXPECT_TRUE(
      progress_all_until([&] { return sent.done && received.done && !recorder.messages.empty(); }));
  ASSERT_EQ(recorder.messages.size(), 1u);
  EXPECT_EQ(recorder.messages[0].data, message);
  EXPECT_EQ(buffer, bulk);
}

TEST_P(TransportTest, BulkBothDirectionsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{4096}, std::size_t{9000},
        std::size_t{300000}, std::size_t{1} << 20, std::size_t{16} << 20}) {
    SCOPED_TRACE(size);
    on_all([&](int rank) {
      const int other = 1 - rank;
      const Bytes out = pattern(size, static_cast<unsigned>(rank));
      Bytes in(size, 0xee);
      Completion sent;
      Completion received;
      at(rank)->recv(other, size, in.data(), size, &received);
      at(rank)->send(other, size, out.data(), size, &sent);
      EXPECT_TRUE(run_until(at(rank), [&] { return sent.done && received.done; }));
      EXPECT_TRUE(sent.status.ok()) << sent.status.message();
      EXPECT_TRUE(received.status.ok()) << received.status.message();
      EXPECT_EQ(in, pattern(size, static_cast<unsigned>(other)));
    });
  }
  EXPECT_EQ(at(0)->counters().bulk_bytes_sent, at(1)->counters().bulk_bytes_received);
  EXPECT_GT(at(0)->counters().bulk_bytes_sent, std::uint64_t{16} << 20);
}

TEST_P(TransportTest, ManyOutstandingFindTheirTagAndSender) {
  constexpr int kRanks = 3;
  constexpr int kTransfers = 200;
  ASSERT_NO_FATAL_FAILURE(connect(kRanks));
  const auto size_of = [](int i) { return static_cast<std::size_t>(i * i * 7 % 60000); };
  const auto seed_of = [](int from, int to, int i) {
    return static_cast<unsigned>((from * kRanks + to) * kTransfers + i);
  };
  on_all([&](int rank) {
    std::vector<Bytes> out, in;
    std::vector<std::unique_ptr<Completion>> completions;
    const auto completion = [&] {
      return completions.emplace_back(std::make_unique<Completion>()).get();
    };
    in.reserve(kRanks * kTransfers);
    for (int other = 0; other < kRanks; ++other) {
      for (int i = 0; i < kTransfers; ++i) {
        out.push_back(pattern(size_of(i), seed_of(rank, other, i)));
        // The same tags for all senders.
        at(rank)->send(other, static_cast<std::uint64_t>(i), out.back().data(), out.back().size(),
                       completion());
      }
    }
    // Received in another order than sent.
    for (int other = 0; other < kRanks; ++other) {
      for (int i = kTransfers - 1; i >= 0; --i) {
        in.emplace_back(size_of(i));
        at(rank)->recv(other, static_cast<std::uint64_t>(i), in.back().data(), in.back().size(),
                       completion());
      }
    }
    EXPECT_TRUE(run_until(at(rank), [&] {
      for (const auto& c : completions) {
        if (!c->done) return false;
      }
      return true;
    }));
    std::size_t next = 0;
    for (int other = 0; other < kRanks; ++other) {
      for (int i = kTransfers - 1; i >= 0; --i) {
        ASSERT_EQ(in[next++], pattern(size_of(i), seed_of(other, rank, i))) << other << " " << i;
      }
    }
    for (const auto& c : completions) EXPECT_TRUE(c->status.ok()) << c->status.message();
  });
}

TEST_P(TransportTest, SameTagKeepsItsOrder) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  const std::size_t sizes[] = {100, 1 << 20, 8, 40000};
  std::vector<Bytes> out, in;
  std::vector<Completion> completions(8);
  for (int i = 0; i < 4; ++i) {
    out.push_back(pattern(sizes[i], static_cast<unsigned>(i)));
    in.emplace_back(sizes[i]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    at(0)->send(1, 5, out[i].data(), sizes[i], &completions[i]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    at(1)->recv(0, 5, in[i].data(), sizes[i], &completions[4 + i]);
  }
  EXPECT_TRUE(progress_all_until([&] {
    for (const auto& c : completions) {
      if (!c.done) return false;
    }
    return true;
  }));
  for (const auto& c : completions) EXPECT_TRUE(c.status.ok()) << c.status.message();
  EXPECT_EQ(in, out);
}

TEST_P(TransportTest, BulkIsKeptUntilItIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  for (const std::size_t size : {std::size_t{10}, std::size_t{50000}, std::size_t{4} << 20}) {
    SCOPED_TRACE(size);
    const Bytes out = pattern(size, 3);
    Completion sent;
    at(0)->send(1, 1, out.data(), size, &sent);
    for (int i = 0; i < 200; ++i) {
      at(0)->progress();
      at(1)->progress();
    }
    Bytes in(size);
    Completion received;
    at(1)->recv(0, 1, in.data(), size, &received);
    EXPECT_TRUE(progress_all_until([&] { return sent.done && received.done; }));
    EXPECT_TRUE(received.status.ok()) << received.status.message();
    EXPECT_EQ(in, out);
  }
}

TEST_P(TransportTest, SizesThatDisagreeAreAnError) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  for (const auto& [sent_size, asked_size] :
       std::vector<std::pair<std::size_t, std::size_t>>{{10, 20}, {20, 10}, {2 << 20, 1 << 20}}) {
    SCOPED_TRACE(sent_size);
    const Bytes out = pattern(sent_size, 3);
    Bytes in(asked_size);
    Completion sent;
    Completion received;
    at(1)->recv(0, 1, in.data(), asked_size, &received);
    at(0)->send(1, 1, out.data(), sent_size, &sent);
    EXPECT_TRUE(progress_all_until([&] { return sent.done && received.done; }));
    EXPECT_EQ(received.status.code(), ErrorCode::kMismatch) << received.status.message();
    EXPECT_NE(received.status.message().find("rank 0"), std::string::npos)
        << received.status.message();
  }
}

TEST_P(TransportTest, BadTransfersFailAtOnce) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  std::uint8_t byte = 0;
  for (const auto& [rank, tag] :
       std::vector<std::pair<int, std::uint64_t>>{{2, 1}, {-1, 1}, {1, std::uint64_t{1} << 48}}) {
    Completion sent;
    Completion received;
    at(0)->send(rank, tag, &byte, 1, &sent);
    at(0)->recv(rank, tag, &byte, 1, &received);
    ASSERT_TRUE(sent.done && received.done);
    EXPECT_EQ(sent.status.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(received.status.code(), ErrorCode::kInvalidArgument);
  }
}

TEST_P(TransportTest, TransfersNeedAConnection) {
  ASSERT_NO_FATAL_FAILURE(make(2));
  std::uint8_t byte = 0;
  Completion sent;
  Completion received;
  at(0)->send(1, 1, &byte, 1, &sent);
  at(0)->recv(1, 1, &byte, 1, &received);
  ASSERT_TRUE(sent.done && received.done);
  EXPECT_EQ(sent.status.code(), ErrorCode::kNotConnected);
  EXPECT_EQ(received.status.code(), ErrorCode::kNotConnected);
}

TEST_P(TransportTest, WaitHonoursTimeouts) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  for (int i = 0; i < 1000; ++i) {  // let connections settle
    at(0)->progress();
    at(1)->progress();
  }
  for (const double seconds : {0.0, 0.0003, 0.02, 0.2}) {
    SCOPED_TRACE(seconds);
    // wait() may end early, so sum up; then the number of turns tells spinning.
    double best = kPatience;
    for (int attempt = 0; attempt < 5; ++attempt) {
      const double start = now();
      int turns = 0;
      do {
        at(0)->wait(std::max(0.0, seconds - (now() - start)));
        at(0)->progress();
        ++turns;
      } while (now() - start < seconds);
      best = std::min(best, now() - start);
      EXPECT_LT(turns, 100);
    }
    EXPECT_LT(best, seconds + 0.05);
  }
}

TEST_P(TransportTest, WakeBeforeWait) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  for (int i = 0; i < 1000; ++i) at(0)->progress();
  for (int i = 0; i < 3; ++i) {
    at(0)->wake();
    at(0)->wake();
    const double start = now();
    at(0)->wait(kPatience);
    EXPECT_LT(now() - start, kPatience / 2);
  }
  // All of them are used up.
  double waited = 0;
  for (int i = 0; i < 10 && waited < 0.04; ++i) {
    const double start = now();
    at(0)->wait(0.05);
    waited = now() - start;
    at(0)->progress();
  }
  EXPECT_GE(waited, 0.04);
}

TEST_P(TransportTest, WakeDuringWait) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  std::atomic<int> wakes{0};
  std::atomic<bool> finished{false};
  std::thread waker([&] {
    while (!finished.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      wakes.fetch_add(1);
      at(0)->wake();
    }
  });
  const double start = now();
  for (int seen = 0; seen < 20;) {
    at(0)->progress();
    at(0)->wait(-1);  // would hang if a wake() got lost
    seen = wakes.load();
  }
  EXPECT_LT(now() - start, kPatience);
  finished.store(true);
  waker.join();
}

TEST_P(TransportTest, WaitEndsWhenSomethingArrives) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  constexpr int kTurns = 300;
  on_all([&](int rank) {
    std::uint8_t byte = 0;
    for (int i = 0; i < kTurns; ++i) {  // ping, pong
      Completion sent;
      Completion received;
      at(rank)->recv(1 - rank, 1, &byte, 1, &received);
      const bool first = rank == 0;
      if (first) at(rank)->send(1, 1, &byte, 1, &sent);
      const auto wait_for = [&](const Completion& completion) {
        const double deadline = now() + kPatience;
        while (!completion.done) {
          ASSERT_LT(now(), deadline);
          if (!at(rank)->progress() && !completion.done) at(rank)->wait(-1);
        }
      };
      ASSERT_NO_FATAL_FAILURE(wait_for(received));
      if (!first) at(rank)->send(0, 1, &byte, 1, &sent);
      ASSERT_NO_FATAL_FAILURE(wait_for(sent));
    }
  });
}

TEST_P(TransportTest, CancelAllLetsGoOfEverything) {
  ASSERT_NO_FATAL_FAILURE(connect(3));
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  auto small = std::make_unique<Bytes>(16, 0xaa);
  auto large = std::make_unique<Bytes>(kLarge, 0xbb);
  auto target = std::make_unique<Bytes>(kLarge, 0xcc);
  auto completions = std::make_unique<std::vector<Completion>>(5);
  auto& c = *completions;
  at(0)->send(1, 1, small->data(), small->size(), &c[0]);
  at(0)->send(1, 2, large->data(), large->size(), &c[1]);
  at(0)->recv(2, 3, small->data(), small->size(), &c[2]);
  at(0)->recv(1, 4, target->data(), target->size(), &c[3]);
  at(0)->send(2, 5, large->data(), large->size(), &c[4]);
  // One of the receives meets its message, some of it may have moved.
  const Bytes out = pattern(kLarge, 8);
  Completion sent;
  at(1)->send(0, 4, out.data(), out.size(), &sent);
  for (int i = 0; i < 3; ++i) {
    at(1)->progress();
    at(0)->progress();
  }
  at(0)->cancel_all();
  std::vector<bool> done;
  for (const auto& completion : c) done.push_back(completion.done);
  const Bytes target_then = *target;
  std::fill(small->begin(), small->end(), std::uint8_t{0x11});

  // The peers go on as if nothing had happened.
  Bytes in(kLarge);
  Completion received[3];
  Bytes theirs(16, 0x22);
  Completion theirs_sent;
  at(1)->recv(0, 2, in.data(), in.size(), &received[0]);
  at(2)->recv(0, 5, in.data(), in.size(), &received[1]);
  at(2)->send(0, 3, theirs.data(), theirs.size(), &theirs_sent);
  for (int i = 0; i < 2000; ++i) {
    for (int rank = 0; rank < 3; ++rank) at(rank)->progress();
  }
  for (std::size_t i = 0; i < c.size(); ++i) EXPECT_EQ(c[i].done, done[i]) << i;
  EXPECT_EQ(*target, target_then);
  EXPECT_EQ(*small, Bytes(16, 0x11));
  // Freed: AddressSanitizer sees whoever still uses it.
  completions.reset();
  small.reset();
  target.reset();

  // Control messages go on, bulk transfers don't.
  const Bytes message = pattern(100, 1);
  at(0)->send_control(1, message.data(), message.size());
  EXPECT_TRUE(progress_all_until([&] { return !recorder(1).messages.empty(); }));
  Completion late;
  at(0)->send(1, 9, message.data(), message.size(), &late);
  ASSERT_TRUE(late.done);
  EXPECT_EQ(late.status.code(), ErrorCode::kAborted);
  at(0)->cancel_all();
  for (int rank = 2; rank >= 0; --rank) at(rank)->close();
}

TEST_P(TransportTest, CloseTwiceAndUseAfterwards) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  ASSERT_NO_FATAL_FAILURE(greet());
  const Bytes message = pattern(100, 1);
  at(0)->send_control(1, message.data(), message.size());
  at(0)->close();
  at(0)->close();
  // What was sent before close() arrives, and then the end.
  EXPECT_TRUE(run_until(at(1), [&] { return !recorder(1).lost.empty(); }));
  ASSERT_EQ(recorder(1).messages.size(), 1u);
  EXPECT_EQ(recorder(1).messages[0].data, message);
  EXPECT_EQ(recorder(1).lost, std::vector<int>{0});

  Completion completion;
  std::uint8_t byte = 0;
  at(0)->send(1, 1, &byte, 1, &completion);
  ASSERT_TRUE(completion.done);
  EXPECT_EQ(completion.status.code(), ErrorCode::kNotConnected);
  at(0)->send_control(1, &byte, 1);
  at(0)->cancel_all();
  EXPECT_FALSE(at(0)->progress());
  at(0)->wake();
  at(0)->wait(kPatience);
  EXPECT_FALSE(at(0)->connect(addresses()).ok());
  at(0)->set_listener(nullptr);
  // The peer knows.
  Completion to_the_lost;
  at(1)->send(0, 1, &byte, 1, &to_the_lost);
  ASSERT_TRUE(to_the_lost.done);
  EXPECT_EQ(to_the_lost.status.code(), ErrorCode::kPeerLost);
}

TEST_P(TransportTest, NobodyIsToldAfterTheListenerHasGone) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  ASSERT_NO_FATAL_FAILURE(greet());
  at(1)->set_listener(nullptr);
  const Bytes message = pattern(10, 1);
  at(0)->send_control(1, message.data(), message.size());
  for (int i = 0; i < 100; ++i) {
    at(0)->progress();
    at(1)->progress();
  }
  at(0)->close();
  for (int i = 0; i < 100; ++i) at(1)->progress();
  at(1)->set_listener(&recorder(1));
  for (int i = 0; i < 100; ++i) at(1)->progress();
  EXPECT_TRUE(recorder(1).messages.empty());
  EXPECT_TRUE(recorder(1).lost.empty());
}

TEST_P(TransportTest, AListenerMayCloseTheTransport) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  ASSERT_NO_FATAL_FAILURE(greet());
  struct Closer : Recorder {
    Transport* transport = nullptr;
    void on_control(int from, const std::uint8_t* data, std::size_t size) override {
      Recorder::on_control(from, data, size);
      transport->close();
    }
  };
  Closer closer;
  closer.transport = at(1);
  at(1)->set_listener(&closer);
  const Bytes message = pattern(10, 1);
  for (int i = 0; i < 5; ++i) at(0)->send_control(1, message.data(), message.size());
  EXPECT_TRUE(progress_all_until([&] { return !recorder(0).lost.empty(); }));
  EXPECT_EQ(closer.messages.size(), 1u);
}

TEST_P(TransportTest, ConnectNamesTheRankWhoseAddressIsBad) {
  ASSERT_NO_FATAL_FAILURE(make(3));
  const std::vector<Bytes> good = addresses();
  const auto expect_error = [&](const std::vector<Bytes>& all, const std::string& part) {
    const Status status = at(0)->connect(all);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  expect_error({good[0], good[1]}, "2 ranks, expected 3");
  expect_error({good[0], good[1], Bytes()}, "address of rank 2");
  expect_error({good[0], Bytes{1, 2, 3}, good[2]}, "address of rank 1");
  expect_error({good[0], good[2], good[1]}, "comes from rank 2");
  // Every truncation, and every damaged byte, is noticed.
  for (std::size_t size = 0; size < good[1].size(); ++size) {
    Bytes cut(good[1].begin(), good[1].begin() + static_cast<std::ptrdiff_t>(size));
    expect_error({good[0], cut, good[2]}, "address of rank 1");
  }
  for (std::size_t i = 0; i < good[1].size(); ++i) {
    Bytes damaged = good[1];
    damaged[i] ^= 0x41;
    expect_error({good[0], damaged, good[2]}, "address of rank 1");
  }
  Bytes longer = good[1];
  longer.push_back(0);
  expect_error({good[0], longer, good[2]}, "address of rank 1");
  EXPECT_TRUE(at(0)->connect(good).ok());
  expect_error(good, "already");
}

TEST_P(TransportTest, OneRankAlone) {
  ASSERT_NO_FATAL_FAILURE(connect(1));
  const Bytes out = pattern(100000, 1);
  Bytes in(out.size());
  Completion sent;
  Completion received;
  at(0)->send(0, 1, out.data(), out.size(), &sent);
  at(0)->recv(0, 1, in.data(), in.size(), &received);
  at(0)->send_control(0, out.data(), 10);
  EXPECT_TRUE(run_until(
      at(0), [&] { return sent.done && received.done && !recorder(0).messages.empty(); }));
  EXPECT_EQ(in, out);
}

TEST(UcxTransport, RefusesImpossibleRanks) {
  Status status;
  EXPECT_EQ(make_ucx_transport(2, 2, &status), nullptr);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(make_ucx_transport(-1, 2, &status), nullptr);
  EXPECT_EQ(make_ucx_transport(0, 0, &status), nullptr);
  EXPECT_EQ(make_ucx_transport(0, (1 << 16) + 1, &status), nullptr);
  EXPECT_NE(status.message().find("65536"), std::string::npos) << status.message();
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(UcxTransport, UsesTheChosenInterfaces) {
  for (const char* variable : {"HVD_PARTIAL_NETWORK_INTERFACES", "HOROVOD_GLOO_IFACE"}) {
    const Environment chosen(variable, "lo");
    const std::string names = ucx_transport_names();
    EXPECT_NE(names.find("control tcp/lo\n"), std::string::npos) << names;
    EXPECT_EQ(names.find("eth"), std::string::npos) << names;
    EXPECT_NE(names.find("memory"), std::string::npos) << names;  // shared memory stays
  }
  const Environment launcher("HOROVOD_GLOO_IFACE", "no-such-interface");
  EXPECT_EQ(ucx_transport_names().rfind("error: ", 0), 0u);
  const Environment chosen("HVD_PARTIAL_NETWORK_INTERFACES", "lo");  // wins
  EXPECT_EQ(ucx_transport_names().rfind("control tcp/lo\n", 0), 0u) << ucx_transport_names();
}

TEST(UcxTransport, NamesTheInterfaceThatDoesNotExist) {
  const Environment chosen("HVD_PARTIAL_NETWORK_INTERFACES", "lo,nope0");
  Status status;
  EXPECT_EQ(make_ucx_transport(0, 2, &status), nullptr);
  for (const char* part : {"rank 0", "nope0", "HVD_PARTIAL_NETWORK_INTERFACES", "lo"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

TEST(Interfaces, AreThoseThatTheLauncherWasToldToUse) {
  const std::vector<Interface> host = {{"lo", {0x7F000001}},
                                       {"eth0", {0x0A010203}},
                                       {"eth1", {0xC0A80001, 0x0A020304}},
                                       {"docker0", {0xAC110001}}};
  const auto choose = [&](const std::vector<std::pair<const char*, const char*>>& variables) {
    std::vector<std::unique_ptr<Environment>> set;
    for (const auto& [name, value] : variables) {
      set.push_back(std::make_unique<Environment>(name, value));
    }
    std::string chosen;
    const Status status = chosen_interfaces(host, &chosen);
    return status.ok() ? chosen : "error: " + status.message();
  };
  constexpr const char* kOurs = "HVD_PARTIAL_NETWORK_INTERFACES";
  constexpr const char* kGloo = "HOROVOD_GLOO_IFACE";
  constexpr const char* kMpi = "OMPI_MCA_btl_tcp_if_include";
  constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";
  EXPECT_EQ(choose({}), "");
  EXPECT_EQ(choose({{kOurs, ""}}), "");
  EXPECT_EQ(choose({{kOurs, "eth1, lo,eth1"}}), "eth1,lo");
  EXPECT_EQ(choose({{kOurs, "mlx5_0:1,eth0"}}), "mlx5_0:1,eth0");
  EXPECT_EQ(choose({{kOurs, "eth0"}, {"UCX_NET_DEVICES", "lo"}, {kGloo, "lo"}}), "eth0");
  EXPECT_EQ(choose({{"UCX_NET_DEVICES", "lo"}, {kGloo, "eth0"}, {kMpi, "eth0"}}), "");
  EXPECT_EQ(choose({{kGloo, "eth0"}, {kMpi, "eth1"}, {kNccl, "lo"}}), "eth0");
  EXPECT_EQ(choose({{kMpi, "eth0,lo"}, {kNccl, "eth1"}}), "eth0,lo");
  EXPECT_EQ(choose({{kMpi, "10.0.0.0/8"}}), "eth0,eth1");
  EXPECT_EQ(choose({{kMpi, "10.1.2.3/32,127.0.0.0/8"}}), "eth0,lo");
  EXPECT_EQ(choose({{kMpi, "0.0.0.0/0"}}), "lo,eth0,eth1,docker0");
  EXPECT_EQ(choose({{kNccl, "eth"}}), "eth0,eth1");
  EXPECT_EQ(choose({{kNccl, "=eth1,lo"}}), "lo,eth1");
  EXPECT_EQ(choose({{kNccl, "^lo,docker"}}), "eth0,eth1");
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {kOurs, "eth"},        {kGloo, "eth9"},      {kMpi, "10.9.0.0/16"},
      {kMpi, "10.0.0.0/33"}, {kMpi, "10.0.0.0/x"}, {kMpi, "10.0.0/8"},
      {kNccl, "ib"},         {kNccl, "=eth"},      {kNccl, "^"}};
  for (const auto& [name, value] : wrong) {
    const std::string text = choose({{name, value}});
    if (std::string(value) == "^") {
      EXPECT_EQ(text, "lo,eth0,eth1,docker0");  // all but none
      continue;
    }
    for (const char* part : {"error: ", name, value, "eth0, eth1", kOurs}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

// Addresses of the sockets that listen in this process, as /proc/net/tcp has
// them: local addresses in hexadecimal.
std::set<std::string> listening() {
  std::set<std::string> inodes, addresses;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmit, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmit >> user >>
          timeout >> inode;
      if (state == "0A" && inodes.count(inode) > 0)
        addresses.insert(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

TEST(UcxTransport, ListensOnTheChosenInterfacesOnly) {
  ASSERT_TRUE(listening().empty());
  const Environment tcp("UCX_TLS", "tcp");  // bulk listens, too
  Status status;
  const auto everywhere = make_ucx_transport(0, 2, &status);
  ASSERT_NE(everywhere, nullptr) << status.message();
  const std::set<std::string> all = listening();
  EXPECT_FALSE(all.empty());
  EXPECT_EQ(all.count("00000000"), 0u);  // never the address that means all
  everywhere->close();
  ASSERT_TRUE(listening().empty());
  for (const char* variable : {"HVD_PARTIAL_NETWORK_INTERFACES", "HOROVOD_GLOO_IFACE",
                               "OMPI_MCA_btl_tcp_if_include", "NCCL_SOCKET_IFNAME"}) {
    const Environment chosen(variable, "lo");
    const auto here = make_ucx_transport(0, 2, &status);
    ASSERT_NE(here, nullptr) << status.message();
    EXPECT_EQ(listening(), std::set<std::string>{"0100007F"}) << variable;  // 127.0.0.1
    here->close();
  }
}

// The header of a message, as it comes from people who do not belong here.
TEST(ControlHeader, LetsInOnlyWhoKnowsTheSecret) {
  JobSecret secret, other;
  ASSERT_TRUE(JobSecret::draw(&secret).ok());
  ASSERT_TRUE(JobSecret::draw(&other).ok());
  EXPECT_FALSE(same_token(secret.token, other.token));
  EXPECT_NE(secret.tag_mask, other.tag_mask);
  ControlHeader good;
  good.token = secret.token;
  good.from = 2;
  good.size = 4;
  const auto read = [&](const void* bytes, std::size_t size) {
    ControlHeader header;
    return read_header(bytes, size, secret, /*rank=*/0, /*size=*/4, &header);
  };
  EXPECT_EQ(read(&good, sizeof(good)), "");
  for (std::size_t size = 0; size < sizeof(good); ++size) EXPECT_NE(read(&good, size), "");
  // The sequence number, the last eight bytes, is the transport's affair.
  for (std::size_t i = 0; i < sizeof(good) - 8; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      if (i == 24 && bit == 0) continue;  // rank 3 instead of rank 2
      ControlHeader bad = good;
      reinterpret_cast<std::uint8_t*>(&bad)[i] ^= static_cast<std::uint8_t>(1 << bit);
      EXPECT_NE(read(&bad, sizeof(bad)), "") << "byte " << i << ", bit " << bit;
    }
  }
  const auto expect = [&](ControlHeader bad, const std::string& part) {
    const std::string why = read(&bad, sizeof(bad));
    EXPECT_NE(why.find(part), std::string::npos) << why;
  };
  ControlHeader bad = good;
  bad.magic = 0;
  expect(bad, "not a message of hvd_partial");
  bad = good;
  bad.version = 1;
  bad.token = other.token;
  expect(bad, "another version");
  bad = good;
  bad.token = other.token;
  expect(bad, "another job");
  bad = good;
  bad.from = 4;
  expect(bad, "rank 4 of 4");
  bad = good;
  bad.from = 0;  // the receiver itself
  expect(bad, "rank 0 of 4");
  bad = good;
  bad.size = 5;
  expect(bad, "of 5");
}

TEST(UcxLog, EachPlacePrintsALittleAMinute) {
  PrintLimit limit;
  const char* file = "tcp_ep.c";
  int printed = 0;
  for (int i = 0; i < 1000; ++i) printed += limit.admits(file, 1, 100 + i * 0.01) ? 1 : 0;
  EXPECT_EQ(printed, PrintLimit::kMost);
  EXPECT_TRUE(limit.admits(file, 2, 100));  // another place
  EXPECT_TRUE(limit.admits(file, 1, 100 + PrintLimit::kSeconds));
  // More places than it has room for stay limited, too.
  printed = 0;
  for (unsigned i = 0; i < 10000; ++i) printed += limit.admits(file, i, 110) ? 1 : 0;
  EXPECT_LT(printed, 300);
}

TEST(UcxTransport, LeavesSignalHandlersAlone) {
  Status status;
  const auto transport = make_ucx_transport(0, 1, &status);
  ASSERT_NE(transport, nullptr) << status.message();
  // Sanitizers take the others for themselves.
  struct sigaction action{};
  ASSERT_EQ(sigaction(SIGHUP, nullptr, &action), 0);
  EXPECT_TRUE(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
}

class ParkerTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutPwait2, ParkerTest, ::testing::Bool());

TEST_P(ParkerTest, HonoursShortTimeoutsAndWakes) {
  Parker parker;
  ASSERT_TRUE(parker.open(GetParam()).ok());
  for (const double seconds : {0.0, 0.0002, 0.03}) {
    double best = kPatience;
    for (int i = 0; i < 20; ++i) {
      const double start = now();
      parker.park(seconds);
      const double took = now() - start;
      EXPECT_GE(took, seconds);
      best = std::min(best, took);
    }
    EXPECT_LT(best, seconds + 0.0008);
  }
  parker.wake();
  parker.wake();
  double start = now();
  parker.park(-1);
  parker.wake();
  parker.park(kPatience);
  EXPECT_LT(now() - start, kPatience / 2);
  start = now();
  parker.park(0.03);
  EXPECT_GE(now() - start, 0.03);
}

// ---- simulation -------------------------------------------------------------

class SimulatedFabric : public ::testing::Test {
 protected:
  void make(int size, std::function<double(int, int, bool)> delay) {
    fabric_ = std::make_unique<InProcessFabric>(size);
    fabric_->set_delay(std::move(delay));
    std::vector<Bytes> all;
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(fabric_->make(rank));
      all.push_back(ranks_.back()->address());
    }
    recorders_.resize(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      at(rank)->set_listener(&recorder(rank));
      ASSERT_TRUE(at(rank)->connect(all).ok());
    }
  }
  Transport* at(int rank) { return ranks_[static_cast<std::size_t>(rank)].get(); }
  Recorder& recorder(int rank) { return recorders_[static_cast<std::size_t>(rank)]; }
  void progress_all() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& rank : ranks_) moved |= rank->progress();
    }
  }
  void say(int from, int to, std::uint8_t what) { at(from)->send_control(to, &what, 1); }

  double next_delay_ = 0;
  std::unique_ptr<InProcessFabric> fabric_;
  std::vector<std::unique_ptr<Transport>> ranks_;
  std::vector<Recorder> recorders_;
};

TEST_F(SimulatedFabric, MessagesTakeTheirTime) {
  make(2, [](int, int, bool control) { return control ? 2.0 : 3.0; });
  EXPECT_EQ(fabric_->next_delivery(), std::numeric_limits<double>::infinity());
  std::uint8_t out = 7;
  std::uint8_t in = 0;
  Completion sent;
  Completion received;
  say(0, 1, 1);
  at(0)->send(1, 1, &out, 1, &sent);
  at(1)->recv(0, 1, &in, 1, &received);
  progress_all();
  EXPECT_TRUE(recorder(1).messages.empty());
  EXPECT_EQ(fabric_->next_delivery(), 2.0);
  fabric_->set_time(2.0);
  progress_all();
  EXPECT_EQ(recorder(1).messages.size(), 1u);
  EXPECT_FALSE(received.done);
  EXPECT_EQ(fabric_->next_delivery(), 3.0);
  fabric_->set_time(3.0);
  fabric_->set_time(1.0);  // does not go back
  EXPECT_EQ(fabric_->time(), 3.0);
  progress_all();
  EXPECT_TRUE(received.done);
  EXPECT_EQ(in, 7);
  EXPECT_FALSE(sent.done);  // the news travels, too
  EXPECT_EQ(fabric_->next_delivery(), 6.0);
  fabric_->set_time(6.0);
  progress_all();
  EXPECT_TRUE(sent.done);
  EXPECT_EQ(fabric_->next_delivery(), std::numeric_limits<double>::infinity());
  at(0)->wait(-1);  // does not block
}

TEST_F(SimulatedFabric, APairKeepsItsOrderWhateverTheDelays) {
  next_delay_ = 10;
  make(3, [this](int, int, bool) { return next_delay_--; });
  for (std::uint8_t i = 0; i < 5; ++i) say(0, 1, i);
  say(2, 1, 99);  // delay 5: not held up by those of another pair
  fabric_->set_time(5);
  progress_all();
  ASSERT_EQ(recorder(1).messages.size(), 1u);
  EXPECT_EQ(recorder(1).messages[0].data[0], 99);
  fabric_->set_time(9.9);
  progress_all();
  EXPECT_EQ(recorder(1).messages.size(), 1u);
  fabric_->set_time(10);
  progress_all();
  ASSERT_EQ(recorder(1).messages.size(), 6u);
  for (std::uint8_t i = 0; i < 5; ++i) EXPECT_EQ(recorder(1).messages[1u + i].data[0], i);
}

TEST_F(SimulatedFabric, TransfersWithTheSameTagKeepTheirOrder) {
  next_delay_ = 10;
  make(2, [this](int from, int, bool) { return from == 0 ? next_delay_-- : 0.0; });
  std::uint8_t out[3] = {1, 2, 3};
  std::uint8_t in[3] = {};
  Completion completions[6];
  at(0)->send(1, 1, &out[0], 1, &completions[0]);  // 10
  at(0)->send(1, 1, &out[1], 1, &completions[1]);  // 9, behind the first
  at(0)->send(1, 2, &out[2], 1, &completions[2]);  // 8
  at(1)->recv(0, 1, &in[0], 1, &completions[3]);
  at(1)->recv(0, 1, &in[1], 1, &completions[4]);
  at(1)->recv(0, 2, &in[2], 1, &completions[5]);
  fabric_->set_time(8);
  progress_all();
  EXPECT_TRUE(completions[5].done);
  EXPECT_FALSE(completions[3].done || completions[4].done);
  fabric_->set_time(9);
  progress_all();
  EXPECT_FALSE(completions[3].done || completions[4].done);
  fabric_->set_time(10);
  progress_all();
  EXPECT_TRUE(completions[3].done && completions[4].done);
  EXPECT_EQ(in[0], 1);
  EXPECT_EQ(in[1], 2);
}

TEST_F(SimulatedFabric, AKilledRankFallsSilent) {
  make(3, [](int, int, bool) { return 1.0; });
  fabric_->set_eager_bytes(4);
  Bytes out(100, 5);
  Bytes in(100, 0);
  std::uint8_t small_in = 0;
  Completion sent;
  Completion received;
  Completion small_sent;
  Completion small_received;
  Completion to_the_dead;
  say(1, 0, 1);
  at(1)->send(0, 1, out.data(), out.size(), &sent);
  at(1)->send(0, 2, out.data(), 1, &small_sent);
  at(0)->recv(1, 1, in.data(), in.size(), &received);
  at(0)->recv(1, 2, &small_in, 1, &small_received);
  at(2)->send(1, 1, out.data(), out.size(), &to_the_dead);
  say(0, 1, 1);
  fabric_->kill(1, 0.5);
  fabric_->kill(1, 0.0);  // once is enough
  std::fill(out.begin(), out.end(), std::uint8_t{9});
  say(1, 0, 2);
  fabric_->set_time(0.5);
  progress_all();
  EXPECT_EQ(recorder(2).lost, std::vector<int>{1});
  EXPECT_TRUE(recorder(0).lost.empty());  // what it had said comes first
  fabric_->set_time(5);
  progress_all();
  ASSERT_EQ(recorder(0).messages.size(), 1u);
  EXPECT_EQ(recorder(0).messages[0].data[0], 1);
  EXPECT_EQ(recorder(0).lost, std::vector<int>{1});
  EXPECT_TRUE(recorder(1).messages.empty());
  EXPECT_TRUE(recorder(1).lost.empty());
  EXPECT_FALSE(at(1)->progress());
  EXPECT_TRUE(small_received.done);  // it was on its way
  EXPECT_EQ(small_in, 5);
  EXPECT_FALSE(received.done || sent.done || to_the_dead.done);
  EXPECT_EQ(in, Bytes(100, 0));
  Completion late;
  at(0)->recv(1, 3, in.data(), in.size(), &late);
  ASSERT_TRUE(late.done);
  EXPECT_EQ(late.status.code(), ErrorCode::kPeerLost);
}

TEST_F(SimulatedFabric, OnlyWitnessesHearOfADeath) {
  make(4, [](int, int, bool) { return 1.0; });
  fabric_->kill(3, 2.0, {0, 3, 17});
  fabric_->set_time(10);
  progress_all();
  EXPECT_EQ(recorder(0).lost, std::vector<int>{3});
  for (const int rank : {1, 2, 3}) EXPECT_TRUE(recorder(rank).lost.empty()) << rank;
}

TEST_F(SimulatedFabric, CloseIsNoticedByThoseConnected) {
  make(3, [](int, int, bool) { return 1.0; });
  say(1, 0, 42);
  at(1)->close();
  fabric_->set_time(1);
  progress_all();
  ASSERT_EQ(recorder(0).messages.size(), 1u);
  EXPECT_EQ(recorder(0).lost, std::vector<int>{1});
  EXPECT_TRUE(recorder(2).lost.empty());
  at(0)->close();
  fabric_->set_time(2);
  progress_all();
  EXPECT_EQ(recorder(2).lost, std::vector<int>{0});
}

TEST(InProcessFabric, KillAmidTransfersOfOtherThreads) {
  constexpr int kRanks = 3;
  InProcessFabric fabric(kRanks);
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<Bytes> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(fabric.make(rank));
    all.push_back(ranks.back()->address());
  }
  EXPECT_EQ(fabric.make(0), nullptr);
  EXPECT_EQ(fabric.make(kRanks), nullptr);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Transport* transport = ranks[static_cast<std::size_t>(rank)].get();
      Recorder recorder;
      transport->set_listener(&recorder);
      EXPECT_TRUE(transport->connect(all).ok());
      Bytes out(100000, static_cast<std::uint8_t>(rank));
      Bytes in(out.size());
      const int next = (rank + 1) % kRanks;
      const int previous = (rank + kRanks - 1) % kRanks;
      for (std::uint64_t tag = 0; recorder.lost.empty() && !stop.load(); ++tag) {
        Completion sent;
        Completion received;
        transport->send(next, tag, out.data(), out.size(), &sent);
        transport->recv(previous, tag, in.data(), in.size(), &received);
        while (!(sent.done && received.done) && recorder.lost.empty() && !stop.load()) {
          if (!transport->progress()) transport->wait(0.01);
        }
        if (!(sent.done && received.done)) transport->cancel_all();
      }
      EXPECT_EQ(recorder.lost, rank == 2 ? std::vector<int>{} : std::vector<int>{2});
      transport->cancel_all();
      std::fill(out.begin(), out.end(), std::uint8_t{0xff});  // nobody may read it now
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fabric.kill(2);
  threads[0].join();
  threads[1].join();
  stop.store(true);
  ranks[2]->wake();
  threads[2].join();
}

}  // namespace
}  // namespace hvd_partial

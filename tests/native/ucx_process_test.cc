// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// The UCX transport between real processes: traffic, crashes, hangs. The test
// process itself never uses UCX; each rank is a fork of it.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/transport.h"
#include "transport/ucx_address.h"
#include "transport/ucx_transport.h"

namespace hvd_partial {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr double kPatience = 30;   // seconds; what takes longer hangs
constexpr double kNoticeTime = 5;  // a death must be noticed within; usually a millisecond
constexpr double kCloseTime = 2;   // cancel_all() and close() must end within

// The same clock in all processes.
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

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
    std::printf("rank %d is lost: %s\n", peer, reason.c_str());
    lost.push_back(peer);
    noticed.push_back(now());
  }
  bool has_lost(int peer) const { return std::count(lost.begin(), lost.end(), peer) == 1; }

  std::vector<Message> messages;
  std::vector<int> lost;
  std::vector<double> noticed;
};

// What a rank's process has.
struct Rank {
  int rank = 0;
  int size = 0;
  int from_parent = -1;
  int to_parent = -1;
  std::vector<Bytes> addresses;
  std::unique_ptr<Transport> transport;
  Recorder recorder;

  void tell(double value) const {
    ASSERT_EQ(write(to_parent, &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
  }

  // Parks for at most `park` seconds at a time (-1: until something happens).
  bool run_until(const std::function<bool()>& done, double seconds = kPatience, double park = 0.1) {
    const double deadline = now() + seconds;
    while (!done()) {
      if (now() > deadline) return false;
      if (!transport->progress() && !done()) transport->wait(park);
    }
    return true;
  }

  void say(int to, std::uint8_t what) { transport->send_control(to, &what, 1); }

  // Everybody has said it to rank 0, and rank 0 to everybody.
  void meet(std::uint8_t what) {
    const auto heard = [&] {
      return std::count_if(recorder.messages.begin(), recorder.messages.end(),
                           [&](const auto& m) { return m.data == Bytes{what}; });
    };
    if (rank != 0) say(0, what);
    ASSERT_TRUE(run_until([&] { return heard() >= (rank == 0 ? size - 1 : 1); }))
        << "rank " << rank << " waited in vain for meeting " << int{what};
    for (int other = 1; rank == 0 && other < size; ++other) say(other, what);
  }

  // With a time limit.
  void cancel_and_close() {
    double start = now();
    transport->cancel_all();
    EXPECT_LT(now() - start, kCloseTime);
    std::printf("rank %d: cancel_all() took %.1f ms", rank, 1e3 * (now() - start));
    start = now();
    transport->close();
    EXPECT_LT(now() - start, kCloseTime);
    std::printf(", close() %.1f ms\n", 1e3 * (now() - start));
  }

  // As the engine does: say goodbye, stop listening, close; rank 0 last.
  void leave() {
    ASSERT_NO_FATAL_FAILURE(meet(250));
    if (rank == 0) {
      EXPECT_TRUE(run_until([&] { return static_cast<int>(recorder.lost.size()) == size - 1; }));
    }
    transport->set_listener(nullptr);
    transport->close();
  }
};

// The processes of one test.
class Job {
 public:
  // `body` runs in each process, after the transport has been made (and
  // connected, unless `connect` is false).
  Job(int size, const std::function<void(Rank*)>& body, bool connect = true)
      : output_(memfd_create("output", 0)) {
    std::signal(SIGPIPE, SIG_IGN);  // a rank that has died is to fail the test, not to end it
    std::fflush(nullptr);
    for (int rank = 0; rank < size; ++rank) start(rank, size, body, connect);
    std::vector<Bytes> addresses;
    for (const Child& child : children_) addresses.push_back(read_bytes(child.from_child));
    for (const Child& child : children_) {
      for (const Bytes& address : addresses) write_bytes(child.to_child, address);
    }
  }

  ~Job() {
    for (Child& child : children_) {
      if (child.pid > 0) {
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
      }
      close(child.from_child);
      close(child.to_child);
    }
    close(output_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void signal(int rank, int number) { ASSERT_EQ(kill(child(rank).pid, number), 0); }

  // Ends the rank's read of one byte.
  void go(int rank) {
    const char byte = 1;
    ASSERT_EQ(write(child(rank).to_child, &byte, 1), 1);
  }

  // What the rank tells, or a failure.
  double hear(int rank) {
    double value = -1;
    pollfd ready{child(rank).from_child, POLLIN, 0};
    const bool heard = poll(&ready, 1, static_cast<int>(kPatience * 1e3)) == 1 &&
                       read(ready.fd, &value, sizeof(value)) == sizeof(value);
    EXPECT_TRUE(heard) << "rank " << rank << " fell silent";
    return value;
  }

  // Waits for the end of all; those in `killed` need not end well. Returns
  // what they printed.
  std::string finish(const std::vector<int>& killed = {}) {
    std::vector<pid_t> pids;
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      pids.push_back(child.pid);
      int status = 0;
      const double deadline = now() + kPatience;
      pid_t ended = 0;
      while ((ended = waitpid(child.pid, &status, WNOHANG)) == 0 && now() < deadline) {
        sleep_for(0.002);
      }
      EXPECT_EQ(ended, child.pid) << "rank " << rank << " hangs";
      if (ended == 0) {
        kill(child.pid, SIGKILL);
        waitpid(child.pid, &status, 0);
      }
      child.pid = -1;
      const bool was_killed = std::count(killed.begin(), killed.end(), static_cast<int>(rank)) > 0;
      if (was_killed) continue;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << rank << " ended with status " << status;
    }
    const std::string printed = output();
    std::printf("%s", printed.c_str());
    expect_no_segments(pids);
    return printed;
  }

 private:
  struct Child {
    pid_t pid = -1;
    int from_child = -1;
    int to_child = -1;
  };

  Child& child(int rank) { return children_[static_cast<std::size_t>(rank)]; }

  void start(int rank, int size, const std::function<void(Rank*)>& body, bool connect) {
    int up[2];
    int down[2];
    ASSERT_EQ(pipe(up), 0);
    ASSERT_EQ(pipe(down), 0);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the test
      close(up[0]);
      close(down[1]);
      dup2(output_, STDOUT_FILENO);
      dup2(output_, STDERR_FILENO);
      std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what a rank said before it was killed counts
      Rank self;
      self.rank = rank;
      self.size = size;
      self.from_parent = down[0];
      self.to_parent = up[1];
      run(&self, body, connect);
      self.transport.reset();
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    close(up[1]);
    close(down[0]);
    children_.push_back({pid, up[0], down[1]});
  }

  static void run(Rank* self, const std::function<void(Rank*)>& body, bool connect) {
    Status status;
    self->transport = make_ucx_transport(self->rank, self->size, &status);
    ASSERT_NE(self->transport, nullptr) << status.message();
    self->transport->set_listener(&self->recorder);
    write_bytes(self->to_parent, self->transport->address());
    for (int i = 0; i < self->size; ++i) {
      self->addresses.push_back(read_bytes(self->from_parent));
    }
    if (connect) {
      status = self->transport->connect(self->addresses);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    body(self);
  }

  static void write_bytes(int fd, const Bytes& bytes) {
    const std::size_t size = bytes.size();
    ASSERT_EQ(write(fd, &size, sizeof(size)), static_cast<ssize_t>(sizeof(size)));
    ASSERT_EQ(write(fd, bytes.data(), size), static_cast<ssize_t>(size));
  }

  static Bytes read_bytes(int fd) {
    std::size_t size = 0;
    if (read(fd, &size, sizeof(size)) != sizeof(size)) return {};
    Bytes bytes(size);
    for (std::size_t got = 0; got < size;) {
      const ssize_t count = read(fd, bytes.data() + got, size - got);
      if (count <= 0) return {};
      got += static_cast<std::size_t>(count);
    }
    return bytes;
  }

  std::string output() const {
    std::string text;
    char buffer[4096];
    off_t offset = 0;
    for (ssize_t count; (count = pread(output_, buffer, sizeof(buffer), offset)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(count));
      offset += count;
    }
    return text;
  }

  // No System V shared memory of these processes has remained.
  static void expect_no_segments(const std::vector<pid_t>& pids) {
    std::ifstream list("/proc/sysvipc/shm");
    std::string line;
    std::getline(list, line);  // key shmid perms size cpid ...
    while (std::getline(list, line)) {
      std::istringstream fields(line);
      long long key = 0, id = 0, permissions = 0, size = 0, creator = 0;
      fields >> key >> id >> permissions >> size >> creator;
      EXPECT_EQ(std::count(pids.begin(), pids.end(), static_cast<pid_t>(creator)), 0)
          << "shared memory segment " << id << " has been left behind";
    }
  }

  std::vector<Child> children_;
  int output_;
};

void expect_no_ucx_messages(const std::string& printed) {
  EXPECT_EQ(printed.find(" UCX "), std::string::npos) << "UCX complained";
}

// One rank's endless exchange with its neighbours in a ring.
class RingTraffic {
 public:
  RingTraffic(Rank* self, std::size_t bytes)
      : self_(self), out_(bytes, static_cast<std::uint8_t>(self->rank)), in_(bytes) {}

  // Moves, and starts the next exchange when one has ended well.
  void turn() {
    if (!started_ || (sent_.done && received_.done)) start();
    if (!self_->transport->progress()) self_->transport->wait(0.05);
  }
  int exchanges() const { return exchanges_; }

 private:
  void start() {
    if (started_ && (!sent_.status.ok() || !received_.status.ok())) return;
    started_ = true;
    ++exchanges_;
    sent_ = {};
    received_ = {};
    const int next = (self_->rank + 1) % self_->size;
    const int previous = (self_->rank + self_->size - 1) % self_->size;
    const std::uint64_t tag = static_cast<std::uint64_t>(exchanges_);
    self_->transport->recv(previous, tag, in_.data(), in_.size(), &received_);
    self_->transport->send(next, tag, out_.data(), out_.size(), &sent_);
  }

  Rank* self_;
  Bytes out_;
  Bytes in_;
  Completion sent_;
  Completion received_;
  bool started_ = false;
  int exchanges_ = 0;
};

TEST(UcxProcess, AllToAllWithRandomSizes) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 25;
  Job job(kRanks, [](Rank* self) {
    std::mt19937 shared(7);  // the same numbers on all ranks
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      std::size_t sizes[kRanks][kRanks];
      for (auto& row : sizes) {
        for (auto& size : row) size = shared() % (std::size_t{1} << (shared() % 22));
      }
      const auto fill = [&](int from, int to) {
        return static_cast<std::uint8_t>(round * 31 + static_cast<std::uint64_t>(from * 7 + to));
      };
      std::vector<Bytes> out(kRanks), in(kRanks);
      std::vector<Completion> done(2 * kRanks);
      for (int other = 0; other < kRanks; ++other) {
        const auto i = static_cast<std::size_t>(other);
        out[i].assign(sizes[self->rank][other], fill(self->rank, other));
        in[i].assign(sizes[other][self->rank], 0xee);
        self->transport->send(other, round, out[i].data(), out[i].size(), &done[2 * i]);
        self->transport->recv(other, round, in[i].data(), in[i].size(), &done[2 * i + 1]);
      }
      ASSERT_TRUE(self->run_until([&] {
        return std::all_of(done.begin(), done.end(), [](const auto& c) { return c.done; });
      })) << "rank "
          << self->rank << " round " << round;
      for (const auto& completion : done) {
        ASSERT_TRUE(completion.status.ok()) << completion.status.message();
      }
      for (int other = 0; other < kRanks; ++other) {
        const auto i = static_cast<std::size_t>(other);
        ASSERT_EQ(in[i], Bytes(sizes[other][self->rank], fill(other, self->rank)));
      }
    }
    self->leave();
  });
  expect_no_ucx_messages(job.finish());
}

TEST(UcxProcess, ComesAndGoesWithoutAWord) {
  Job job(3, [](Rank* self) { self->leave(); });
  expect_no_ucx_messages(job.finish());
}

// Keeps the job's bulk transfers off shared memory.
class BulkOverTcp {
 public:
  explicit BulkOverTcp(bool wanted) {
    if (wanted) setenv("UCX_TLS", "tcp", 1);
  }
  ~BulkOverTcp() { unsetenv("UCX_TLS"); }
  BulkOverTcp(const BulkOverTcp&) = delete;
  BulkOverTcp& operator=(const BulkOverTcp&) = delete;
};

struct Death {
  int victim;
  std::size_t bulk_bytes;  // 0: idle
  bool tcp = false;        // as between hosts
};

class UcxDeath : public ::testing::TestWithParam<Death> {};

INSTANTIATE_TEST_SUITE_P(All, UcxDeath,
                         ::testing::Values(Death{0, 0}, Death{2, 0}, Death{0, 1000}, Death{2, 1000},
                                           Death{0, 200000}, Death{2, 200000}, Death{0, 16 << 20},
                                           Death{2, 16 << 20}, Death{0, 200000, true},
                                           Death{2, 200000, true}, Death{0, 16 << 20, true},
                                           Death{2, 16 << 20, true}),
                         [](const auto& info) {
                           return "Rank" + std::to_string(info.param.victim) +
                                  (info.param.bulk_bytes == 0
                                       ? "Idle"
                                       : "Amid" + std::to_string(info.param.bulk_bytes)) +
                                  (info.param.tcp ? "OverTcp" : "");
                         });

// SIGKILL for one of four ranks. Who is connected with it notices, everybody
// can let go and close.
TEST_P(UcxDeath, IsNoticedAndSurvived) {
  constexpr int kRanks = 4;
  const Death death = GetParam();
  const BulkOverTcp over_tcp(death.tcp);
  Job job(kRanks, [&](Rank* self) {
    ASSERT_NO_FATAL_FAILURE(self->meet(1));
    RingTraffic traffic(self, death.bulk_bytes);
    const auto turn = [&] {
      if (death.bulk_bytes > 0) {
        traffic.turn();
      } else if (!self->transport->progress()) {
        self->transport->wait(0.5);
      }
    };
    // Warm: connections are there, traffic flows.
    const double warm = now() + 0.1;
    while (now() < warm || (death.bulk_bytes > 0 && traffic.exchanges() < 3)) turn();
    self->tell(0);
    const double deadline = now() + kPatience;
    // Rank 0 hears of everybody's end and tells, as the engine does.
    const auto told = [&] {
      return std::any_of(self->recorder.messages.begin(), self->recorder.messages.end(),
                         [](const auto& m) { return m.data == Bytes{99}; });
    };
    while (!self->recorder.has_lost(death.victim) && !told()) {
      ASSERT_LT(now(), deadline) << "rank " << self->rank << " noticed nothing";
      turn();
    }
    const double noticed = now();
    if (self->rank == 0) {
      for (int other = 1; other < kRanks; ++other) self->say(other, 99);
    }
    self->tell(noticed);
    self->cancel_and_close();
    EXPECT_LE(self->recorder.lost.size(), 3u);
  });
  for (int rank = 0; rank < kRanks; ++rank) job.hear(rank);
  const double killed = now();
  ASSERT_NO_FATAL_FAILURE(job.signal(death.victim, SIGKILL));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == death.victim) continue;
    const double took = job.hear(rank) - killed;
    std::printf("rank %d knew after %.2f ms\n", rank, 1e3 * took);
    EXPECT_LT(took, kNoticeTime) << "rank " << rank;
  }
  job.finish({death.victim});
}

// Before connections are there: right after the addresses have been passed on.
// Whoever is late to connect is told by connect() or soon after.
TEST(UcxProcess, DeathBeforeConnectingIsNoticed) {
  for (const int victim : {0, 1}) {
    for (const double late : {0.0, 0.1}) {
      SCOPED_TRACE(victim);
      SCOPED_TRACE(late);
      Job job(
          2,
          [&](Rank* self) {
            if (self->rank == victim) {
              self->tell(now());
              raise(SIGKILL);
            }
            sleep_for(late);
            const double start = now();
            const Status status = self->transport->connect(self->addresses);
            if (status.ok()) {
              EXPECT_TRUE(self->run_until([&] { return self->recorder.has_lost(victim); }));
            } else {
              std::printf("%s\n", status.message().c_str());
              EXPECT_NE(status.message().find("rank " + std::to_string(victim)), std::string::npos);
            }
            self->tell(now() - start);
            self->cancel_and_close();
          },
          false);
      job.hear(victim);
      const double took = job.hear(1 - victim);
      std::printf("rank %d knew %.2f ms after connect()\n", 1 - victim, 1e3 * took);
      EXPECT_LT(took, kNoticeTime);
      job.finish({victim});
    }
  }
}

class UcxStopped : public ::testing::TestWithParam<Death> {};

INSTANTIATE_TEST_SUITE_P(All, UcxStopped,
                         ::testing::Values(Death{1, 1000}, Death{1, 200000}, Death{1, 16 << 20},
                                           Death{1, 1000, true}, Death{1, 16 << 20, true}),
                         [](const auto& info) {
                           return "With" + std::to_string(info.param.bulk_bytes) +
                                  (info.param.tcp ? "OverTcp" : "");
                         });

// All queues are full, sends wait, and the peer does not move at all.
TEST_P(UcxStopped, PeerHoldsNobodyUp) {
  const std::size_t bytes = GetParam().bulk_bytes;
  const BulkOverTcp over_tcp(GetParam().tcp);
  constexpr int kStopped = 1;
  Job job(3, [&](Rank* self) {
    ASSERT_NO_FATAL_FAILURE(self->meet(1));
    Bytes out(bytes, 1);
    Bytes in(bytes);
    Completion received;
    Completion first;
    const int other = self->rank == kStopped ? 0 : kStopped;
    self->transport->recv(other, 1, in.data(), in.size(), &received);
    self->transport->send(other, 1, out.data(), out.size(), &first);
    if (self->rank != 2) {
      ASSERT_TRUE(self->run_until([&] { return received.done && first.done; }));
    }
    self->tell(0);
    if (self->rank == kStopped) {
      // To be stopped while it waits; the others then find it gone.
      self->run_until([&] { return !self->recorder.lost.empty(); });
      self->cancel_and_close();
      return;
    }
    char go = 0;
    ASSERT_EQ(read(self->from_parent, &go, 1), 1);
    // More than fits into any queue.
    const std::size_t count = bytes < 100000 ? 5000 : 40;
    std::vector<Completion> sent(count);
    for (std::size_t i = 0; i < count; ++i) {
      self->transport->send(kStopped, 2, out.data(), out.size(), &sent[i]);
    }
    const Bytes large(100000, 3);
    for (int i = 0; i < 200; ++i) {
      self->transport->send_control(kStopped, large.data(), large.size());
    }
    const double settled = now() + 0.3;
    while (now() < settled) {
      if (!self->transport->progress()) self->transport->wait(0.01);
    }
    EXPECT_FALSE(sent.back().done);

    const double start = now();
    const double cpu_start = static_cast<double>(clock()) / CLOCKS_PER_SEC;
    int turns = 0;
    while (now() - start < 0.5) {
      const double turn = now();
      self->transport->wait(0.05);
      EXPECT_LT(now() - turn, 1.0);
      self->transport->progress();
      ++turns;
    }
    const double cpu = static_cast<double>(clock()) / CLOCKS_PER_SEC - cpu_start;
    std::printf("rank %d: %d turns and %.0f ms of CPU in 500 ms of waiting\n", self->rank, turns,
                1e3 * cpu);
    EXPECT_LT(turns, 2000);
    EXPECT_LT(cpu, 0.25);  // it does not spin

    EXPECT_TRUE(self->recorder.lost.empty());  // stopped is not dead
    self->transport->wake();
    self->cancel_and_close();
    sent.clear();
    Bytes().swap(out);
    self->tell(now());
  });
  for (int rank = 0; rank < 3; ++rank) job.hear(rank);
  ASSERT_NO_FATAL_FAILURE(job.signal(kStopped, SIGSTOP));
  job.go(0);
  job.go(2);
  for (const int rank : {0, 2}) job.hear(rank);
  ASSERT_NO_FATAL_FAILURE(job.signal(kStopped, SIGCONT));
  job.finish();
}

// A process that knows where to connect, and speaks UCX and hvd_partial, but
// belongs to another job: it does not know the secret.
TEST(UcxProcess, AnImpostorIsTurnedAway) {
  constexpr int kImpostor = 2;
  Job job(3, [](Rank* self) {
    if (self->rank == kImpostor) {
      // Two of them: each says it is rank 1, of this job and of a later one.
      for (int attempt = 0; attempt < 2; ++attempt) {
        Status status;
        const auto impostor = make_ucx_transport(1, 3, &status);
        ASSERT_NE(impostor, nullptr) << status.message();
        UcxAddress target;
        ASSERT_TRUE(decode_address(1, 3, 0, self->addresses[0], &target).ok());
        target.secret.token[static_cast<std::size_t>(attempt)] ^= 1;
        target.secret.tag_mask ^= 1;
        std::vector<Bytes> addresses = self->addresses;
        addresses[0] = encode(target);
        addresses[1] = impostor->address();
        Recorder recorder;
        impostor->set_listener(&recorder);
        ASSERT_TRUE(impostor->connect(addresses).ok());
        const Bytes lies(1000, 66);
        Completion sent[20];
        for (auto& one : sent) {
          impostor->send_control(0, lies.data(), lies.size());
          // Rank 0 waits for this tag of rank 1.
          impostor->send(0, 7, lies.data(), 8, &one);
        }
        const double deadline = now() + 0.5;
        while (now() < deadline) {
          if (!impostor->progress()) impostor->wait(0.01);
          self->transport->progress();
        }
        impostor->cancel_all();
      }
    }
    ASSERT_NO_FATAL_FAILURE(self->meet(1));
    // What rank 0 gets of rank 1 is what rank 1 has sent, and nobody is lost.
    Bytes bytes(8, static_cast<std::uint8_t>(self->rank));
    Completion done;
    if (self->rank == 1) self->transport->send(0, 7, bytes.data(), bytes.size(), &done);
    if (self->rank == 0) self->transport->recv(1, 7, bytes.data(), bytes.size(), &done);
    if (self->rank <= 1) {
      ASSERT_TRUE(self->run_until([&] { return done.done; }));
      ASSERT_TRUE(done.status.ok()) << done.status.message();
      EXPECT_EQ(bytes, Bytes(8, 1));
    }
    ASSERT_NO_FATAL_FAILURE(self->meet(2));
    EXPECT_TRUE(self->recorder.lost.empty());
    for (const auto& message : self->recorder.messages) EXPECT_EQ(message.data.size(), 1u);
    self->leave();
  });
  const std::string printed = job.finish();
  const std::string warning = "rank 0: turned away a control message (1 so far): it comes from";
  EXPECT_NE(printed.find(warning), std::string::npos);
  // Once, however often they spoke.
  EXPECT_EQ(printed.find("turned away"), printed.rfind("turned away"));
}

// How fast it is; the limits are far above what a busy machine shows.
// One message at a time, so that each waits for the one before it: a wake-up
// that goes missing shows as a hang.
TEST(UcxProcess, PingPongOfEverySize) {
  Job job(2, [](Rank* self) {
    std::size_t heard = 0;
    const auto meet = [&] {
      ASSERT_NO_FATAL_FAILURE(self->meet(static_cast<std::uint8_t>(++heard)));
    };
    ASSERT_NO_FATAL_FAILURE(meet());
    const int other = 1 - self->rank;
    const auto finish = [&](const Completion& completion) {
      ASSERT_TRUE(self->run_until([&] { return completion.done; }, kPatience, /*park=*/-1));
      ASSERT_TRUE(completion.status.ok()) << completion.status.message();
    };
    for (const auto& [bytes, turns] :
         std::vector<std::pair<std::size_t, int>>{{8, 1000},
                                                  {4096, 1000},
                                                  {65536, 500},
                                                  {std::size_t{1} << 20, 50},
                                                  {std::size_t{16} << 20, 5}}) {
      Bytes out(bytes);
      Bytes in(bytes);
      for (int i = 0; i < turns; ++i) {
        // What rank 0 sends comes back with one added to its first byte.
        const auto expected = static_cast<std::uint8_t>(self->rank == 0 ? i + 1 : i);
        Completion sent;
        Completion received;
        self->transport->recv(other, 1, in.data(), bytes, &received);
        if (self->rank == 0) {
          out.front() = out.back() = static_cast<std::uint8_t>(i);
          self->transport->send(other, 1, out.data(), bytes, &sent);
        }
        ASSERT_NO_FATAL_FAILURE(finish(received));
        ASSERT_EQ(in.front(), expected) << bytes << " bytes, turn " << i;
        ASSERT_EQ(in.back(), static_cast<std::uint8_t>(i)) << bytes << " bytes";
        if (self->rank == 1) {
          out = in;
          ++out.front();
          self->transport->send(other, 1, out.data(), bytes, &sent);
        }
        ASSERT_NO_FATAL_FAILURE(finish(sent));
      }
      ASSERT_NO_FATAL_FAILURE(meet());
    }
    for (int i = 0; i < 1000; ++i) {
      if (self->rank == 0) self->say(1, 0);
      ++heard;  // one message for each meeting and each turn
      ASSERT_TRUE(self->run_until([&] { return self->recorder.messages.size() >= heard; },
                                  kPatience, /*park=*/-1));
      if (self->rank == 1) self->say(0, 0);
    }
    self->leave();
  });
  expect_no_ucx_messages(job.finish());
}

}  // namespace
}  // namespace hvd_partial

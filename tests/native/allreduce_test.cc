// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "collective/allreduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collective/float16.h"

namespace {
bool counting_allocations = false;
std::size_t allocations = 0;
}  // namespace

// This program counts what the reduction allocates. (Not inlined: else the
// compiler warns of memory from new that goes to free.)
__attribute__((noinline)) void* operator new(std::size_t size) {
  if (counting_allocations) ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t size,
                                             const std::nothrow_t& /*tag*/) noexcept {
  return std::malloc(size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace hvd_partial {
namespace {

// All ranks' bulk transfers, in one thread. A transfer happens at a moment
// that the seed decides: until then the sender's bytes are not looked at and
// the receiver's hold garbage, as with a real transport.
class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}

  struct Posted {
    int from;
    int to;
    std::uint64_t tag;
    std::uint8_t* data;
    std::size_t size;
    Completion* completion;
  };

  void send(const Posted& send) { sends_.push_back(send); }
  void recv(const Posted& recv) {
    std::memset(recv.data, 0xA5, recv.size);
    recvs_.push_back(recv);
  }

  // Completes one side of one transfer; false if nothing can move.
  bool move_something() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < recvs_.size(); ++i) {
      if (match(recvs_[i]) < sends_.size()) ready.push_back(i);
    }
    if (ready.empty() && ended_.empty()) return false;
    if (ready.empty() || (!ended_.empty() && random_() % 2 == 0)) {
      // A send's completion may become known long after its bytes arrived.
      const std::size_t i = random_() % ended_.size();
      ended_[i]->done = true;
      ended_.erase(ended_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    const std::size_t chosen = ready[random_() % ready.size()];
    const Posted recv = recvs_[chosen];
    const std::size_t at = match(recv);
    const Posted send = sends_[at];
    recvs_.erase(recvs_.begin() + static_cast<std::ptrdiff_t>(chosen));
    sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(at));
    if (send.size != recv.size) {
      ADD_FAILURE() << "sent " << send.size << " bytes, expected " << recv.size;
      return false;
    }
    std::memcpy(recv.data, send.data, send.size);
    bytes_ += send.size;
    recv.completion->done = true;
    ended_.push_back(send.completion);
    return true;
  }

  void fail_transfers_of(int rank) {
    for (std::vector<Posted>* all : {&sends_, &recvs_}) {
      for (const Posted& posted : *all) {
        if (posted.from != rank && posted.to != rank) continue;
        posted.completion->done = true;
        posted.completion->status = Status(ErrorCode::kPeerLost, "rank is gone");
      }
      all->erase(std::remove_if(all->begin(), all->end(),
                                [&](const Posted& posted) { return posted.completion->done; }),
                 all->end());
    }
  }

  void cancel_all() {
    sends_.clear();
    recvs_.clear();
    ended_.clear();
  }

  bool idle() const { return sends_.empty() && recvs_.empty() && ended_.empty(); }
  std::size_t bytes() const { return bytes_; }
  std::mt19937_64& random() { return random_; }

 private:
  std::size_t match(const Posted& recv) const {
    std::size_t i = 0;
    while (i < sends_.size() &&
           (sends_[i].from != recv.from || sends_[i].to != recv.to || sends_[i].tag != recv.tag)) {
      ++i;
    }
    return i;
  }

  std::mt19937_64 random_;
  std::vector<Posted> sends_;
  std::vector<Posted> recvs_;
  std::vector<Completion*> ended_;
  std::size_t bytes_ = 0;
};

// Only the bulk calls: a reduction uses no others.
class FakeTransport : public Transport {
 public:
  FakeTransport(World* world, int rank, int size) : world_(world), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(int to, std::uint64_t tag, const void* data, std::size_t size,
            Completion* completion) override {
    const bool counted = std::exchange(counting_allocations, false);
    auto* bytes = static_cast<std::uint8_t*>(const_cast<void*>(data));
    world_->send({rank_, to, tag, bytes, size, completion});
    counting_allocations = counted;
  }
  void recv(int from, std::uint64_t tag, void* data, std::size_t size,
            Completion* completion) override {
    const bool counted = std::exchange(counting_allocations, false);
    world_->recv({from, rank_, tag, static_cast<std::uint8_t*>(data), size, completion});
    counting_allocations = counted;
  }
  void cancel_all() override { world_->cancel_all(); }

  std::vector<std::uint8_t> address() const override { return {}; }
  Status connect(const std::vector<std::vector<std::uint8_t>>& /*addresses*/) override {
    return {};
  }
  void set_listener(TransportListener* /*listener*/) override {}
  void send_control(int /*to*/, const std::uint8_t* /*data*/, std::size_t /*size*/) override {
    ADD_FAILURE() << "a reduction sends no control messages";
  }
  bool progress() override { return false; }
  void wait(double /*seconds*/) override {}
  void wake() override {}
  void close() override {}
  TransportCounters counters() const override { return {}; }

 private:
  World* world_;
  int rank_;
  int size_;
};

double read(DType dtype, const std::uint8_t* at) {
  const auto as = [at](auto number) {
    std::memcpy(&number, at, sizeof number);
    return number;
  };
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<double>(as(float{}));
    case DType::kFloat64:
      return as(double{});
    case DType::kFloat16:
      return static_cast<double>(float16_to_float(as(std::uint16_t{})));
    case DType::kBFloat16:
      return static_cast<double>(bfloat16_to_float(as(std::uint16_t{})));
    case DType::kInt32:
      return as(std::int32_t{});
    case DType::kInt64:
      return static_cast<double>(as(std::int64_t{}));
  }
  return 0;
}

void write(DType dtype, std::uint8_t* at, double value) {
  const auto put = [at](auto number) { std::memcpy(at, &number, sizeof number); };
  switch (dtype) {
    case DType::kFloat32:
      return put(static_cast<float>(value));
    case DType::kFloat64:
      return put(value);
    case DType::kFloat16:
      return put(float_to_float16(static_cast<float>(value)));
    case DType::kBFloat16:
      return put(float_to_bfloat16(static_cast<float>(value)));
    case DType::kInt32:
      return put(static_cast<std::int32_t>(value));
    case DType::kInt64:
      return put(static_cast<std::int64_t>(value));
  }
}

// Largest relative error of one addition.
double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0x1p-23;
    case DType::kFloat64:
      return 0x1p-52;
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    default:
      return 0;
  }
}

// A job of `size` ranks whose reductions run in one thread, in random order.
class Job {
 public:
  Job(int size, TensorLayout layout, Allreduce::Planner planner, std::uint64_t seed)
      : world_(seed), layout_(std::move(layout)) {
    for (int rank = 0; rank < size; ++rank) {
      auto& member = ranks_.emplace_back(std::make_unique<Rank>(&world_, rank, size));
      member->scratch.resize(layout_.bytes());
      member->buffer.resize(layout_.bytes());
      member->reduce = std::make_unique<Allreduce>(&member->transport, &layout_,
                                                   member->scratch.data(), planner);
    }
  }

  // Fills every buffer, reduces over `members`, and compares.
  void reduce_and_check(const std::vector<int>& members, std::uint64_t tag_base) {
    std::vector<double> sums(elements(), 0.0), magnitudes(elements(), 0.0);
    std::uniform_real_distribution<double> values(-100.0, 100.0);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const bool member =
          std::binary_search(members.begin(), members.end(), static_cast<int>(rank));
      for_each_element([&](std::size_t i, DType dtype, std::size_t at) {
        const double value = values(world_.random());
        std::uint8_t* place = ranks_[rank]->buffer.data() + at;
        write(dtype, place, is_floating(dtype) ? value : std::trunc(value));
        if (!member) return;
        sums[i] += read(dtype, place);
        magnitudes[i] += std::fabs(read(dtype, place));
      });
    }
    std::vector<std::vector<std::uint8_t>> untouched;
    for (const auto& rank : ranks_) untouched.push_back(rank->buffer);

    run(members, tag_base);
    if (::testing::Test::HasFatalFailure()) return;

    const std::vector<std::uint8_t>& first = at(members[0]).buffer;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (std::binary_search(members.begin(), members.end(), rank)) {
        ASSERT_EQ(first, at(rank).buffer) << "rank " << rank << " has other bits";
      } else {
        ASSERT_EQ(untouched[static_cast<std::size_t>(rank)], at(rank).buffer) << "rank " << rank;
      }
    }
    for_each_element([&](std::size_t i, DType dtype, std::size_t at) {
      const double bound = magnitudes[i] * epsilon(dtype) * static_cast<double>(members.size());
      ASSERT_NEAR(sums[i], read(dtype, first.data() + at), bound) << "element " << i;
    });
  }

  void run(const std::vector<int>& members, std::uint64_t tag_base) {
    for (const int rank : members) {
      at(rank).reduce->start(members, tag_base, at(rank).buffer.data());
      ASSERT_TRUE(at(rank).reduce->active());
    }
    std::vector<int> working = members;
    while (!working.empty()) {
      const std::size_t i = world_.random()() % (working.size() + 1);
      if (i == working.size()) {
        // Transfers go on, or else somebody must be able to.
        world_.move_something();
        if (world_.idle() && stuck(working)) break;
        continue;
      }
      Allreduce& reduce = *at(working[i]).reduce;
      if (!reduce.step()) continue;
      ASSERT_TRUE(reduce.status().ok()) << reduce.status().message();
      ASSERT_FALSE(reduce.active());
      working.erase(working.begin() + static_cast<std::ptrdiff_t>(i));
    }
    ASSERT_TRUE(working.empty()) << working.size() << " ranks never end";
    while (world_.move_something()) {
    }
    ASSERT_TRUE(world_.idle()) << "transfers left over";
  }

  struct Rank {
    Rank(World* world, int rank, int size) : transport(world, rank, size) {}
    FakeTransport transport;
    std::vector<std::uint8_t> scratch;
    std::vector<std::uint8_t> buffer;
    std::unique_ptr<Allreduce> reduce;
  };
  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  World& world() { return world_; }

 private:
  // With nothing under way and after a step of everybody nothing is posted.
  bool stuck(const std::vector<int>& working) {
    for (const int rank : working) {
      if (at(rank).reduce->step()) return false;
    }
    return world_.idle();
  }

  std::size_t elements() const {
    std::size_t total = 0;
    for (const TensorSpec& tensor : layout_.tensors()) total += tensor.elements;
    return total;
  }

  template <class Function>
  void for_each_element(Function function) const {
    std::size_t number = 0;
    for (std::size_t tensor = 0; tensor < layout_.tensors().size(); ++tensor) {
      const TensorSpec& spec = layout_.tensors()[tensor];
      for (std::size_t i = 0; i < spec.elements; ++i, ++number) {
        function(number, spec.dtype, layout_.offset(tensor) + i * dtype_size(spec.dtype));
      }
    }
  }

  World world_;
  TensorLayout layout_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TensorLayout random_layout(std::mt19937_64* random, std::size_t largest) {
  std::vector<TensorSpec> tensors((*random)() % 9);
  for (TensorSpec& tensor : tensors) {
    tensor.dtype = static_cast<DType>((*random)() % 6);
    tensor.elements = (*random)() % largest;
  }
  return TensorLayout(tensors);
}

std::vector<int> random_members(std::mt19937_64* random, int size) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  if ((*random)() % 3 == 0) return members;
  std::shuffle(members.begin(), members.end(), *random);
  members.resize(1 + (*random)() % members.size());
  std::sort(members.begin(), members.end());
  return members;
}

// Small chunks would need a plan of its own; large ones make a plan that
// always waits. This one has many steps under way at a time.
Plan chunked_ring_plan(int members, int index, std::size_t bytes) {
  const Plan whole = ring_plan(members, index, bytes);
  Plan plan;
  constexpr std::size_t kChunks = 3;
  for (const PlanStep& step : whole.steps) {
    for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
      const auto cut = [&](std::size_t begin, std::size_t end, std::size_t part) {
        const std::size_t units = (end - begin) / TensorLayout::kAlignment;
        return begin + units * part / kChunks * TensorLayout::kAlignment;
      };
      PlanStep piece = step;
      piece.send_begin = cut(step.send_begin, step.send_end, chunk);
      piece.send_end = cut(step.send_begin, step.send_end, chunk + 1);
      piece.recv_begin = cut(step.recv_begin, step.recv_end, chunk);
      piece.recv_end = cut(step.recv_begin, step.recv_end, chunk + 1);
      if (piece.send_begin == piece.send_end) piece.send_to = PlanStep::kNobody;
      if (piece.recv_begin == piece.recv_end) piece.recv_from = PlanStep::kNobody;
      if (piece.add) {
        plan.scratch_bytes = std::max(plan.scratch_bytes, piece.recv_end - piece.recv_begin);
      }
      plan.steps.push_back(piece);
    }
  }
  return plan;
}

const Allreduce::Planner kPlanners[] = {recursive_doubling_plan, halving_doubling_plan, ring_plan,
                                        choose_plan, chunked_ring_plan};

TEST(Allreduce, RandomMembersLayoutsAndOrders) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int size = 1 + static_cast<int>(random() % 17);
    const auto planner = kPlanners[seed % std::size(kPlanners)];
    const std::size_t largest = std::size_t{1} << (1 + random() % 9);
    Job job(size, random_layout(&random, largest), planner, seed);
    // The same objects, rounds with the same and with other members.
    for (std::uint64_t round = 0; round < 4; ++round) {
      job.reduce_and_check(random_members(&random, size), (round + 1) << Allreduce::kTagBits);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Allreduce, LongTensorsInChunks) {
  const std::size_t elements = 3 * Plan::kChunkBytes / sizeof(float) + 1000;
  for (const auto planner : kPlanners) {
    for (const int size : {2, 3, 4}) {
      Job job(size, TensorLayout({{DType::kFloat32, elements}, {DType::kInt64, 5000}}), planner, 7);
      std::vector<int> members(static_cast<std::size_t>(size));
      std::iota(members.begin(), members.end(), 0);
      job.reduce_and_check(members, 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Allreduce, OneMemberEndsAtOnceAndSendsNothing) {
  Job job(5, TensorLayout({{DType::kFloat32, 10}}), choose_plan, 1);
  job.reduce_and_check({3}, 0);
  EXPECT_EQ(0u, job.world().bytes());
}

TEST(Allreduce, NothingToReduceSendsNothing) {
  Job job(4, TensorLayout({{DType::kFloat32, 0}}), choose_plan, 1);
  for (int rank = 0; rank < 4; ++rank) {
    Allreduce& reduce = *job.at(rank).reduce;
    reduce.start({0, 1, 2, 3}, 0, nullptr);  // data() of an empty vector
    EXPECT_TRUE(reduce.active());
    EXPECT_TRUE(reduce.step());
    EXPECT_FALSE(reduce.active());
  }
  EXPECT_TRUE(job.world().idle());
}

TEST(Allreduce, AllocatesNothingWithStableMembers) {
  for (const auto planner : kPlanners) {
    Job job(5, TensorLayout({{DType::kFloat32, 3000}, {DType::kFloat16, 100}}), planner, 3);
    const std::vector<int> members = {0, 2, 3, 4};
    job.reduce_and_check(members, 0);
    if (HasFatalFailure()) return;

    allocations = 0;
    for (const int rank : members) {
      counting_allocations = true;
      job.at(rank).reduce->start(members, 1 << Allreduce::kTagBits, job.at(rank).buffer.data());
      counting_allocations = false;
    }
    std::size_t ended = 0;
    while (ended < members.size()) {
      for (const int rank : members) {
        if (!job.at(rank).reduce->active()) continue;
        counting_allocations = true;
        ended += job.at(rank).reduce->step() ? 1 : 0;
        counting_allocations = false;
      }
      job.world().move_something();
    }
    EXPECT_EQ(0u, allocations);
  }
}

TEST(Allreduce, FailedTransferEndsItAndItCanStartAgain) {
  Job job(3, TensorLayout({{DType::kFloat64, 500}}), ring_plan, 5);
  const std::vector<int> members = {0, 1, 2};
  for (const int rank : members) {
    job.at(rank).reduce->start(members, 0, job.at(rank).buffer.data());
    EXPECT_FALSE(job.at(rank).reduce->step());
  }
  job.world().fail_transfers_of(1);
  for (const int rank : members) {
    Allreduce& reduce = *job.at(rank).reduce;
    EXPECT_TRUE(reduce.step());
    EXPECT_TRUE(reduce.active()) << "the other transfer may still be under way";
    EXPECT_EQ(ErrorCode::kPeerLost, reduce.status().code());
  }
  job.world().cancel_all();
  for (const int rank : members) {
    job.at(rank).reduce->reset();
    EXPECT_FALSE(job.at(rank).reduce->active());
    EXPECT_TRUE(job.at(rank).reduce->status().ok());
  }
  job.reduce_and_check({0, 2}, 1 << Allreduce::kTagBits);
}

TEST(Allreduce, ARankThatIsNoMemberIsAnError) {
  Job job(3, TensorLayout({{DType::kFloat32, 5}}), choose_plan, 1);
  Allreduce& reduce = *job.at(1).reduce;
  reduce.start({0, 2}, 0, job.at(1).buffer.data());
  EXPECT_TRUE(reduce.step());
  EXPECT_EQ(ErrorCode::kInternal, reduce.status().code());
  EXPECT_NE(std::string::npos, reduce.status().message().find("rank 1"));
  reduce.reset();
  job.reduce_and_check({0, 1, 2}, 0);
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "collective/plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collective/tensor_layout.h"

namespace hvd_partial {
namespace {

using Planner = Plan (*)(int, int, std::size_t);

struct NamedPlanner {
  const char* name;
  Planner make;
};
const NamedPlanner kPlanners[] = {{"recursive doubling", recursive_doubling_plan},
                                  {"halving doubling", halving_doubling_plan},
                                  {"ring", ring_plan},
                                  {"chosen", choose_plan}};

// A byte range of one member stands for a sum; here it is the formula of that
// sum: which members' numbers are in it, how often, and added in which shape.
struct Sum {
  std::vector<int> counts;
  std::uint64_t shape;  // equal shapes: bitwise equal sums
};

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}

Sum plus(const Sum& a, const Sum& b) {
  Sum sum = a;
  for (std::size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += b.counts[i];
  // Commutative as a floating-point addition is, and as little associative.
  sum.shape = mix(mix(a.shape) + mix(b.shape));
  return sum;
}

// Runs the plans of all members on formulas, one for each kAlignment bytes,
// step by step, and checks that they match and what comes out.
void check(const NamedPlanner& planner, int members, std::size_t bytes) {
  const std::string what = std::string(planner.name) + ", " + std::to_string(members) +
                           " members, " + std::to_string(bytes) + " bytes";
  SCOPED_TRACE(what);
  constexpr std::size_t kUnit = TensorLayout::kAlignment;
  const auto count = static_cast<std::size_t>(members);
  const std::size_t units = (bytes + kUnit - 1) / kUnit;

  std::vector<Plan> plans;
  std::vector<std::vector<Sum>> data(count);
  for (int member = 0; member < members; ++member) {
    plans.push_back(planner.make(members, member, bytes));
    Sum own{std::vector<int>(count, 0), mix(static_cast<std::uint64_t>(member) + 1)};
    own.counts[static_cast<std::size_t>(member)] = 1;
    data[static_cast<std::size_t>(member)].assign(units, own);
  }
  const std::size_t steps = plans[0].steps.size();
  ASSERT_LE(steps, Plan::kMaxSteps);
  for (const Plan& plan : plans) ASSERT_EQ(steps, plan.steps.size());
  if (members == 1 || bytes == 0) {
    ASSERT_EQ(0u, steps);
  }

  for (std::size_t number = 0; number < steps; ++number) {
    const std::vector<std::vector<Sum>> before = data;
    std::vector<int> received_from(count, PlanStep::kNobody);
    for (std::size_t member = 0; member < count; ++member) {
      const PlanStep& step = plans[member].steps[number];
      if (step.send_to != PlanStep::kNobody) {
        ASSERT_LT(step.send_begin, step.send_end);
        const PlanStep& theirs = plans[static_cast<std::size_t>(step.send_to)].steps[number];
        ASSERT_EQ(static_cast<int>(member), theirs.recv_from) << "step " << number;
      }
      if (step.recv_from == PlanStep::kNobody) continue;
      ASSERT_NE(static_cast<int>(member), step.recv_from);
      ASSERT_LT(step.recv_begin, step.recv_end);
      ASSERT_LE(step.recv_end, bytes);
      ASSERT_EQ(0u, step.recv_begin % kUnit);
      ASSERT_TRUE(step.recv_end % kUnit == 0 || step.recv_end == bytes);
      const PlanStep& theirs = plans[static_cast<std::size_t>(step.recv_from)].steps[number];
      ASSERT_EQ(static_cast<int>(member), theirs.send_to) << "step " << number;
      ASSERT_EQ(step.recv_begin, theirs.send_begin) << "step " << number;
      ASSERT_EQ(step.recv_end, theirs.send_end) << "step " << number;
      const bool overlap = step.send_to != PlanStep::kNobody && step.send_begin < step.recv_end &&
                           step.recv_begin < step.send_end;
      ASSERT_TRUE(step.add || !overlap) << "step " << number;
      if (step.add) {
        ASSERT_LE(step.recv_end - step.recv_begin, plans[member].scratch_bytes);
      }
      for (std::size_t at = step.recv_begin; at < step.recv_end; at += kUnit) {
        const Sum& from = before[static_cast<std::size_t>(step.recv_from)][at / kUnit];
        Sum& to = data[member][at / kUnit];
        to = step.add ? plus(to, from) : from;
      }
    }
  }
  for (std::size_t member = 0; member < count; ++member) {
    ASSERT_LE(plans[member].scratch_bytes, bytes);
    for (std::size_t unit = 0; unit < units; ++unit) {
      ASSERT_EQ(std::vector<int>(count, 1), data[member][unit].counts)
          << "member " << member << ", unit " << unit;
      ASSERT_EQ(data[0][unit].shape, data[member][unit].shape)
          << "member " << member << " would have other bits, unit " << unit;
    }
  }
}

TEST(Plan, SumsEveryMemberOnceAndBitwiseEqually) {
  for (const NamedPlanner& planner : kPlanners) {
    for (int members = 1; members <= 33; ++members) {
      for (const std::size_t units : {0, 1, 2, 3, 7, 16, 40}) {
        check(planner, members, units * TensorLayout::kAlignment);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Plan, ManyMembers) {
  for (const NamedPlanner& planner : kPlanners) {
    for (const int members : {63, 64, 65, 100}) {
      check(planner, members, 20 * TensorLayout::kAlignment);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Plan, LongRangesAreCut) {
  for (const NamedPlanner& planner : kPlanners) {
    for (const int members : {2, 3, 4, 5, 6}) {
      const std::size_t bytes = 5 * Plan::kChunkBytes + 64 * 7;
      check(planner, members, bytes);
      if (HasFatalFailure()) return;
      for (const PlanStep& step : planner.make(members, 0, bytes).steps) {
        EXPECT_LE(step.send_end - step.send_begin, Plan::kChunkBytes);
        EXPECT_LE(step.recv_end - step.recv_begin, Plan::kChunkBytes);
      }
    }
  }
}

// Checks the steps only: simulating a gigabyte would take too long.
TEST(Plan, StepsOfHugeBuffersFitTheTags) {
  for (const NamedPlanner& planner : kPlanners) {
    for (const int members : {2, 3, 16, 17, 64, 2047}) {
      const Plan first = planner.make(members, 0, std::size_t{8} << 30);
      EXPECT_GT(first.steps.size(), 0u);
      EXPECT_LE(first.steps.size(), Plan::kMaxSteps) << planner.name << ", " << members;
      const Plan last = planner.make(members, members - 1, std::size_t{8} << 30);
      EXPECT_EQ(first.steps.size(), last.steps.size()) << planner.name << ", " << members;
    }
  }
  EXPECT_LE(choose_plan(5000, 4999, std::size_t{8} << 30).steps.size(), Plan::kMaxSteps);
}

TEST(Plan, SendsTheLeastItCan) {
  const auto sent = [](const Plan& plan) {
    std::size_t bytes = 0;
    for (const PlanStep& step : plan.steps) bytes += step.send_end - step.send_begin;
    return bytes;
  };
  const std::size_t bytes = 64 * 5 * 7 * 8;
  EXPECT_EQ(3 * bytes, sent(recursive_doubling_plan(8, 3, bytes)));
  EXPECT_EQ(2 * bytes * 7 / 8, sent(halving_doubling_plan(8, 3, bytes)));
  for (const int members : {5, 7, 8}) {
    const std::size_t least =
        2 * bytes * static_cast<std::size_t>(members - 1) / static_cast<std::size_t>(members);
    EXPECT_EQ(least, sent(ring_plan(members, 1, bytes))) << members;
  }
}

}  // namespace
}  // namespace hvd_partial

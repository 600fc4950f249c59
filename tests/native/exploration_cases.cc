// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "exploration_cases.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace hvd_partial {
namespace {

std::size_t all_states = 0;

class Total : public ::testing::Environment {
 public:
  void TearDown() override {
    if (all_states > 0) std::printf("%zu distinct states in all\n", all_states);
  }
};

[[maybe_unused]] ::testing::Environment* const total =
    ::testing::AddGlobalTestEnvironment(new Total);

}  // namespace

bool wanted(Extent extent) {
  const char* all = std::getenv("HVD_PARTIAL_EXPLORE");
  switch (extent) {
    case Extent::kSmall:
      return true;
    case Extent::kMedium:
      return !kSanitized;
    case Extent::kLarge:
      return all != nullptr && std::string(all) == "all";
  }
  return true;
}

std::vector<Mode> all_modes() {
  return {{ModeKind::kSync},      {ModeKind::kMajority},         {ModeKind::kSolo},
          {ModeKind::kQuorum, 2}, {ModeKind::kDesignated, 0, 7}, {ModeKind::kAsync}};
}

void expect_sound(Job job, const Search& search) {
  std::size_t states = 0;
  for (const Mode& mode : all_modes()) {
    for (const double grace : {0.0, 1.0}) {
      if (grace > 0 && mode.kind != ModeKind::kMajority) continue;
      job.mode = mode;
      job.grace = grace;
      const Outcome outcome = explore(job, search);
      std::printf("%-14s grace %g: %9zu states, %5zu ends\n", to_string(mode).c_str(), grace,
                  outcome.states, outcome.ends);
      ASSERT_EQ(outcome.broken, "") << to_string(mode);
      ASSERT_TRUE(outcome.complete) << to_string(mode) << ": too many states";
      EXPECT_GT(outcome.ends, 0u) << to_string(mode);
      states += outcome.states;
    }
  }
  std::printf("%zu distinct states\n", states);
  all_states += states;
}

}  // namespace hvd_partial

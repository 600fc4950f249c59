// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_EXPLORATION_H_
#define HVD_PARTIAL_TESTS_EXPLORATION_H_

#include <cstddef>
#include <string>
#include <vector>

#include "exploration_world.h"

namespace hvd_partial {

struct Search {
  // Take urgent events alone, and tell ranks that do the same not apart.
  bool reduced = true;
  // Keep the keys of the states in which nothing can happen any more.
  bool keep_ends = false;
  // Look at each state again whenever another path leads to it: it must have
  // the same future.
  bool check_keys = false;
  // In each state with an urgent event: the others commute with it.
  bool check_urgent = false;
  std::size_t most_states = 20'000'000;
};

struct Outcome {
  std::size_t states = 0;
  std::size_t ends = 0;
  std::string broken;         // what, and how it came to it
  bool complete = true;       // no limit was hit
  std::vector<Key> end_keys;  // sorted, those of equal ranks once
};

// All that can happen, depth first; the story of a failure is the path to it.
Outcome explore(const Job& job, const Search& search = {});

// The first line of a story.
std::string headline(const std::string& story);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_EXPLORATION_H_

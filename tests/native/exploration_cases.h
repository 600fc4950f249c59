// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_EXPLORATION_CASES_H_
#define HVD_PARTIAL_TESTS_EXPLORATION_CASES_H_

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "exploration.h"

namespace hvd_partial {

// A sanitizer makes this ten times slower and finds nothing in the larger jobs
// that it does not find in the smaller ones: here is one thread only.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

enum class Extent {
  kSmall,   // also under a sanitizer
  kMedium,  // in every plain build
  kLarge    // with HVD_PARTIAL_EXPLORE=all only
};

struct Case {
  const char* name;
  Extent extent;
  Job job;  // but for the mode
};

inline void PrintTo(const Case& explored, std::ostream* out) { *out << explored.name; }

// Whether a case of this extent is to be explored here.
bool wanted(Extent extent);

std::vector<Mode> all_modes();

// In every mode, with all invariants; prints the states of each and, at the
// end of the process, of all.
void expect_sound(Job job, const Search& search = {});

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_EXPLORATION_CASES_H_

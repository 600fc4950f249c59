// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_ROUND_HEADER_H_
#define HVD_PARTIAL_ENGINE_ROUND_HEADER_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "protocol/member.h"

namespace hvd_partial {

// What every rank learns about a round besides the sum.
struct RoundHeader {
  std::uint64_t round = 0;
  Mode mode;
  bool flush = false;
  bool included = false;  // this rank contributed
  // The round that was under way when the contributions were given: this one,
  // or an earlier one, whose reduction was deferred.
  std::uint64_t given_to = 0;
  int contributions = 0;
  int contributors = 0;
  int skipped = 0;
  int dropped = 0;
  double weight = 0;
  double divisor = 1;
  std::uint64_t total_contributions = 0;
  std::vector<std::int32_t> contributions_of;  // by rank
  std::vector<std::int32_t> dropped_of;        // by rank
  std::vector<double> compute_seconds_of;      // by rank
};

// The header travels as one more tensor of the flat buffer: each rank fills
// its own numbers, all others are zero, and the sum of all is the table of
// everybody. (A sum with zeros is exact.)
class HeaderBlock {
 public:
  static constexpr std::size_t kNumbersPerRank = 5;
  static std::size_t elements(int size) { return kNumbersPerRank * size; }

  static void write(double* block, int size, int rank, const Snapshot& own,
                    double compute_seconds) {
    for (std::size_t i = 0; i < elements(size); ++i) block[i] = 0;
    double* mine = block + kNumbersPerRank * rank;
    mine[0] = own.contributions;
    mine[1] = own.weight;
    mine[2] = compute_seconds;
    mine[3] = own.skipped;
    mine[4] = own.dropped;
  }

  // The numbers come from other ranks: returns the first rank whose numbers
  // cannot be right, and leaves the header unfinished then; -1 if all can.
  static int read(const double* block, int size, RoundHeader* header) {
    header->contributions = header->contributors = header->skipped = header->dropped = 0;
    header->weight = 0;
    for (int rank = 0; rank < size; ++rank) {
      const double* entry = block + kNumbersPerRank * rank;
      const double most = kMostCounted - header->contributions - header->skipped - header->dropped;
      if (!is_count(entry[0], most) || !is_count(entry[3], most - entry[0]) ||
          !is_count(entry[4], most - entry[0] - entry[3]) || !std::isfinite(entry[1]) ||
          !std::isfinite(entry[2]) || entry[2] < 0) {
        return rank;
      }
      const int contributions = static_cast<int>(entry[0]);
      header->contributions += contributions;
      header->contributors += contributions > 0 ? 1 : 0;
      header->weight += entry[1];
      header->skipped += static_cast<int>(entry[3]);
      header->contributions_of[rank] = contributions;
      header->dropped_of[rank] = static_cast<std::int32_t>(entry[4]);
      header->dropped += header->dropped_of[rank];
      header->compute_seconds_of[rank] = entry[2];
    }
    return -1;
  }

 private:
  static constexpr double kMostCounted = std::numeric_limits<int>::max();

  static bool is_count(double value, double most) {
    return value >= 0 && value <= most && value == std::floor(value);
  }
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_ROUND_HEADER_H_

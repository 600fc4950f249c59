// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/mode.h"

namespace hvd_partial {

bool valid(const Mode& mode, int size) {
  switch (mode.kind) {
    case ModeKind::kSync:
    case ModeKind::kMajority:
    case ModeKind::kSolo:
    case ModeKind::kDesignated:
    case ModeKind::kAsync:
      return true;
    case ModeKind::kQuorum:
      return mode.quorum >= 1 && mode.quorum <= size;
  }
  return false;
}

std::string to_string(const Mode& mode) {
  switch (mode.kind) {
    case ModeKind::kSync:
      return "sync";
    case ModeKind::kMajority:
      return "majority";
    case ModeKind::kSolo:
      return "solo";
    case ModeKind::kQuorum:
      return "quorum(" + std::to_string(mode.quorum) + ")";
    case ModeKind::kDesignated:
      return "designated(" + std::to_string(mode.seed) + ")";
    case ModeKind::kAsync:
      return "async";
  }
  return "unknown";
}

int required_ranks(const Mode& mode, int size) {
  switch (mode.kind) {
    case ModeKind::kSync:
      return size;
    case ModeKind::kMajority:
      return (size + 1) / 2;
    case ModeKind::kQuorum:
      return mode.quorum;
    case ModeKind::kSolo:
    case ModeKind::kDesignated:
    case ModeKind::kAsync:
      return 1;
  }
  return size;
}

int designated_rank(std::uint64_t seed, std::uint64_t round, const std::vector<int>& candidates) {
  // SplitMix64 (Steele, Lea and Flood, 2014) on (seed, round): any round's
  // draw can be had without those before it.
  std::uint64_t x = seed + (round + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return candidates[x % candidates.size()];
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_MODE_H_
#define HVD_PARTIAL_PROTOCOL_MODE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hvd_partial {

// Values are part of the C ABI.
enum class ModeKind : std::int32_t {
  kSync = 0,
  kMajority = 1,
  kSolo = 2,
  kQuorum = 3,
  kDesignated = 4,
  kAsync = 5,
};

// Which ranks a round waits for.
struct Mode {
  ModeKind kind = ModeKind::kMajority;
  std::int32_t quorum = 0;  // kQuorum only
  std::uint64_t seed = 0;   // kDesignated only

  friend bool operator==(const Mode& a, const Mode& b) {
    return a.kind == b.kind && a.quorum == b.quorum && a.seed == b.seed;
  }
  friend bool operator!=(const Mode& a, const Mode& b) { return !(a == b); }
};

// True if `mode` can be used in a job of `size` ranks.
bool valid(const Mode& mode, int size);
// "majority", "quorum(3)", "designated(7)", ...
std::string to_string(const Mode& mode);

// How many ranks must be waiting before a round may start. For kDesignated 1:
// which one, designated_rank() says.
int required_ranks(const Mode& mode, int size);
// The initiator of `round`, drawn by a generator that all ranks share;
// `candidates` is not empty.
int designated_rank(std::uint64_t seed, std::uint64_t round, const std::vector<int>& candidates);
// Whether a late contribution keeps its full weight, whatever the channel's
// staleness rule (the ASP of Sync-Switch).
constexpr bool full_weights(const Mode& mode) { return mode.kind == ModeKind::kAsync; }

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_MODE_H_

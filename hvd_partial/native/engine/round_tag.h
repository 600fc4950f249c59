// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_ROUND_TAG_H_
#define HVD_PARTIAL_ENGINE_ROUND_TAG_H_

#include <cstdint>

#include "collective/allreduce.h"
#include "protocol/messages.h"

namespace hvd_partial {

// Tags of bulk transfers: channel, what it is, round, and the step of a
// reduction (Allreduce::kTagBits). Rounds that are under way at the same time
// differ in their low bits, which is all that is needed.
enum class RoundTransfer : std::uint64_t {
  kReduction = 0,
  kDelivery = 1,  // of a result, to a rank that was left out
};

inline std::uint64_t round_tag(ChannelId channel, RoundTransfer what, std::uint64_t round) {
  constexpr int kRoundBits = 19;
  const std::uint64_t short_round = round & ((std::uint64_t{1} << kRoundBits) - 1);
  return ((std::uint64_t{channel} << 1 | static_cast<std::uint64_t>(what)) << kRoundBits |
          short_round)
         << Allreduce::kTagBits;
}

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_ROUND_TAG_H_

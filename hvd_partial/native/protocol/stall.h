// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_STALL_H_
#define HVD_PARTIAL_PROTOCOL_STALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/messages.h"

namespace hvd_partial {

// What a rank says of a round that was activated and does not end there.
struct HeldRound {
  HeldCause cause = HeldCause::kNone;
  std::uint64_t round = 0;
  double since = 0;
};

// Some ranks of a channel wait, and for whom.
struct Stall {
  enum class Kind : std::uint8_t {
    kCalls,      // too few ranks wait for the round
    kFlush,      // some ranks flush, others do not yet
    kReduction,  // the round has started and does not end
  };
  enum class Why : std::uint8_t {
    kNotOpened,   // has not opened the channel
    kNotCalled,   // has not called since
    kRingFull,    // holds max_lag results that it has not applied
    kDepositing,  // is copying a contribution
    kSilent,      // its progress thread does not answer
  };
  struct Missing {
    int rank = 0;
    Why why = Why::kNotCalled;
    double called = -1;  // its last call; negative: never
  };

  Kind kind = Kind::kCalls;
  ChannelId channel = 0;
  std::string name;
  std::uint64_t round = 0;
  Mode mode;
  double since = 0;                 // the first of them waits
  std::vector<int> waiting;         // these ranks wait
  std::vector<Missing> waited_for;  // for these
  int needed = 0;                   // so many of them would do

  bool same_as(const Stall& other) const {
    return kind == other.kind && channel == other.channel &&
           (kind == Kind::kFlush ? since == other.since : round == other.round);
  }
  // "channel 'g', round 41 (sync): ranks 0 and 1 have waited 60.0 s for rank 2 (last called ...)".
  std::string describe(double now) const;
  // "rank 2", "ranks 0, 1 and 2", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more".
  static std::string list(const std::vector<int>& ranks);
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_STALL_H_

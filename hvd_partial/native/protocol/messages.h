// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_MESSAGES_H_
#define HVD_PARTIAL_PROTOCOL_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "protocol/mode.h"

namespace hvd_partial {

// Control messages between the ranks and the coordinator (rank 0). Messages
// of one pair arrive in order; nothing is assumed between pairs.

using ChannelId = std::uint16_t;
constexpr ChannelId kAllChannels = 0xFFFF;

// The longest message, and the longest texts in it. Whoever opens a channel
// keeps to the limits of name and signature; reasons are cut when encoded.
constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxNameBytes = std::size_t{1} << 12;
constexpr std::size_t kMaxReasonBytes = std::size_t{1} << 14;
constexpr std::size_t kMaxSignatureBytes = kMaxMessageBytes - 2 * kMaxNameBytes;

// ---- rank to coordinator ----------------------------------------------------

// This rank has opened a channel. `signature` holds a line for every property
// in which the ranks must agree.
struct OpenChannel {
  std::string name;
  std::string signature;
  Mode mode;
  double grace_seconds = -1;  // negative: learned
  // How many results may lie unread; 0: results replace each other, so that
  // nobody could be given those it missed.
  std::uint32_t max_lag = 0;
};

// This rank called allreduce: it has deposited, and `round` is the oldest
// round whose result it has not applied.
struct Call {
  ChannelId channel = 0;
  std::uint64_t round = 0;
  bool waiting = false;  // it holds no unapplied result: it asks for `round`
  double compute_seconds = 0;
};

struct SetMode {
  ChannelId channel = kAllChannels;
  Mode mode;
};

// Rounds wait for these ranks no longer, a bit each; none: for all again.
// `drop`: what they contribute goes into no round.
struct Exclude {
  ChannelId channel = 0;
  std::vector<std::uint64_t> bits;
  bool drop = false;
};

// What all ranks decide alike, each when it has seen what it follows from.
// The first that arrives counts; others of the same or an older `number` are
// of ranks that are behind.
struct Decide {
  ChannelId channel = 0;
  std::uint64_t number = 0;  // from 1
  Mode mode;
  std::vector<std::uint64_t> excluded;
  bool drop = false;
};

// This rank makes no contribution before all ranks have met.
struct Flush {
  ChannelId channel = 0;
};

// This rank is done with the channel. If it holds a contribution it takes
// part in one more round. Sent again after each round that it still takes part
// in: until the last of them is complete the others need it.
struct Leave {
  ChannelId channel = 0;
  bool holds_contribution = false;
  std::uint64_t round = 0;  // all before it are complete here
};

// This rank is done with all channels, also those opened later.
struct Goodbye {};

// This rank gives up, for all.
struct Abort {
  std::string reason;
};

// Why a round that was activated does not end on a rank.
enum class HeldCause : std::uint8_t {
  kNone = 0,        // it goes on again
  kRingFull = 1,    // the user's thread must apply a result first
  kDepositing = 2,  // the user's thread copies a contribution
  kReducing = 3,    // the transfers do not end
};

// `round` has been held on this rank for a while; sent seldom, for warnings.
struct Held {
  ChannelId channel = 0;
  std::uint64_t round = 0;
  HeldCause cause = HeldCause::kNone;
  double seconds = 0;
};

// The answer to Freeze: how many rounds are complete here, by channel.
struct Frozen {
  std::uint64_t number = 0;
  std::vector<std::uint64_t> published;
};

// ---- coordinator to rank ----------------------------------------------------

constexpr std::uint64_t kNoRound = ~std::uint64_t{0};

struct ChannelOpened {
  std::string name;
  ChannelId channel = 0;
};

struct ChannelRejected {
  std::string name;
  std::string reason;
};

// The ranks that take part in the rounds activated from now on; a bit each.
// Of these, those that no round waits for, and what becomes of what they give.
struct Members {
  ChannelId channel = 0;
  std::vector<std::uint64_t> bits;
  std::vector<std::uint64_t> excluded;
  bool drop = false;
  // Results of this round and later ones are still to be given to ranks that
  // were left out.
  std::uint64_t keep_from = kNoRound;
};

// Round `round` starts now.
struct Activate {
  ChannelId channel = 0;
  std::uint64_t round = 0;
  Mode mode;
  bool flush = false;  // all ranks have met: the last round of the flush
  // Its result is the sum of that earlier round, which was deferred, and nobody
  // contributes.
  std::uint64_t deferred = kNoRound;
};

// ---- about ranks that do not answer, see silence.cc -------------------------

// No round ends on this rank before Thaw, and it says which have.
struct Freeze {
  std::uint64_t number = 0;
};

struct Thaw {
  std::uint64_t number = 0;
};

// Round `round`, which has ended nowhere, ends without a result. What was given
// to it stays in the reduction that was begun; that ends when all of its members
// are back, and makes the result of a later round: see Activate::deferred.
struct Defer {
  ChannelId channel = 0;
  std::uint64_t round = 0;
};

// Rank `from` gives the results of rounds `first` to `last` to rank `to`.
struct Deliver {
  ChannelId channel = 0;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
};

// ---- ends and warnings ------------------------------------------------------

struct PeerLost {
  std::int32_t peer = 0;
  std::string reason;
};

struct Aborted {
  std::int32_t peer = 0;
  std::string reason;
};

// To ranks that have said goodbye: others are still making rounds.
struct StillTraining {};

// All ranks have said goodbye.
struct AllGone {};

// To a rank that waits: rank 0 has said what it waits for.
struct StallTold {
  ChannelId channel = 0;
  std::uint64_t round = 0;
  std::string text;
};

using Message =
    std::variant<OpenChannel, Call, SetMode, Exclude, Decide, Flush, Leave, Goodbye, Abort,
                 ChannelOpened, ChannelRejected, Members, Activate, PeerLost, Aborted,
                 StillTraining, AllGone, Held, StallTold, Frozen, Freeze, Thaw, Defer, Deliver>;

// Whether a set of ranks, a bit each, has this one.
bool has_rank(const std::vector<std::uint64_t>& bits, int rank);
void add_rank(std::vector<std::uint64_t>* bits, int rank);

// Replaces what `buffer` holds.
void encode(const Message& message, std::vector<std::uint8_t>* buffer);
// Empty for anything that encode() does not write: every number is in the range
// that its meaning has in a job of any size. What depends on the job,
// objections.h looks at.
std::optional<Message> decode(const std::uint8_t* data, std::size_t size);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_MESSAGES_H_

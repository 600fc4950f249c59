// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/stall.h"

#include <algorithm>
#include <cstdio>

#include "protocol/coordinator.h"

namespace hvd_partial {
namespace {

// More of them help nobody who reads one line.
constexpr std::size_t kListedRanks = 8;

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

std::string describe(const Stall::Missing& missing, double now) {
  std::string text = "rank " + std::to_string(missing.rank) + " (";
  switch (missing.why) {
    case Stall::Why::kNotOpened:
      return text + "has not opened the channel)";
    case Stall::Why::kRingFull:
      text += "its ring is full of results that it has not applied, ";
      break;
    case Stall::Why::kDepositing:
      text += "copies a contribution, ";
      break;
    case Stall::Why::kSilent:
      text += "does not answer: stopped, or its host is overloaded; ";
      break;
    case Stall::Why::kNotCalled:
      break;
  }
  if (missing.called < 0) return text + "never called)";
  return text + "last called " + seconds_text(now - missing.called) + " ago)";
}

}  // namespace

std::string Stall::list(const std::vector<int>& ranks) {
  const std::size_t shown = ranks.size() > kListedRanks + 1 ? kListedRanks : ranks.size();
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == shown && shown == ranks.size();
    if (i > 0) text += last ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (shown < ranks.size()) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

std::string Stall::describe(double now) const {
  std::string text = "channel '" + name + "', round " + std::to_string(round) + " (" +
                     to_string(mode) + "): " + list(waiting) +
                     (waiting.size() == 1 ? " has waited " : " have waited ") +
                     seconds_text(now - since);
  if (kind == Kind::kFlush) text += " in a flush";
  if (kind == Kind::kReduction) text += " for the end of the round";
  if (waited_for.empty()) {
    return text + ", in which all ranks take part; do the transfers pass the network?";
  }
  text += kind == Kind::kReduction ? ", held by " : " for ";
  if (needed > 0 && needed < static_cast<int>(waited_for.size())) {
    text += std::to_string(needed) + " of ";
  }
  const std::size_t shown = waited_for.size() > kListedRanks + 1 ? kListedRanks : waited_for.size();
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += ", ";
    text += hvd_partial::describe(waited_for[i], now);
  }
  if (shown < waited_for.size()) {
    text += " and " + std::to_string(waited_for.size() - shown) + " more";
  }
  return text;
}

// ---- the coordinator's part -------------------------------------------------

void Coordinator::held(int from, const Held& message, double now) {
  if (ChannelState* channel = find(message.channel)) {
    channel->held[from] = {message.cause, message.round, now - message.seconds};
    const bool suspicious = message.cause == HeldCause::kReducing && leave_out_seconds_ > 0;
    if (suspicious && suspicion_ == kNever && !census_.under_way) suspicion_ = now;
  }
}

std::vector<Stall> Coordinator::stalls(double now) const {
  std::vector<Stall> found;
  for (const ChannelState& channel : channels_) {
    if (!channel.rejection.empty()) continue;
    Stall calls, flush, reduction;
    for (Stall* stall : {&calls, &flush, &reduction}) {
      stall->channel = channel.id;
      stall->name = channel.name;
      stall->round = channel.next_round;
      stall->mode = channel.mode;
      stall->since = now;
    }
    calls.kind = Stall::Kind::kCalls;
    flush.kind = Stall::Kind::kFlush;
    reduction.kind = Stall::Kind::kReduction;

    std::vector<Stall::Missing> absent, silent;
    std::vector<int> active;
    for (int rank = 0; rank < size_; ++rank) {
      const double called = channel.called[rank];
      const HeldRound& held = channel.held[rank];
      switch (channel.presence[rank]) {
        case Presence::kAbsent:
          absent.push_back({rank, Stall::Why::kNotOpened, -1});
          continue;
        case Presence::kActive:
          active.push_back(rank);
          if (channel.waiting[rank]) {
            calls.waiting.push_back(rank);
            calls.since = std::min(calls.since, channel.arrived[rank]);
          } else {
            calls.waited_for.push_back({rank, Stall::Why::kNotCalled, called});
          }
          flush.waited_for.push_back({rank, Stall::Why::kNotCalled, called});
          break;
        case Presence::kFlushing:
          flush.waiting.push_back(rank);
          flush.since = std::min(flush.since, channel.arrived[rank]);
          break;
        case Presence::kDeparting:
          break;
        case Presence::kLeft:
          if (held.cause == HeldCause::kNone) continue;
          break;
      }
      // Who takes part in the round that was activated last.
      switch (held.cause) {
        case HeldCause::kNone:
          silent.push_back({rank, Stall::Why::kSilent, called});
          continue;
        case HeldCause::kRingFull:
          reduction.waited_for.push_back({rank, Stall::Why::kRingFull, called});
          break;
        case HeldCause::kDepositing:
          reduction.waited_for.push_back({rank, Stall::Why::kDepositing, called});
          break;
        case HeldCause::kReducing:
          reduction.waiting.push_back(rank);
          reduction.since = std::min(reduction.since, held.since);
          reduction.round = held.round;
          break;
      }
    }

    std::vector<Stall::Missing> left_out_ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (left_out(channel, rank)) {
        left_out_ranks.push_back({rank, Stall::Why::kSilent, channel.called[rank]});
      }
    }
    if (!calls.waiting.empty()) {
      if (out_of_room(channel)) {
        calls.waited_for = std::move(left_out_ranks);
        calls.needed = static_cast<int>(calls.waited_for.size());
      } else if (!absent.empty()) {
        calls.waited_for = absent;
        calls.needed = static_cast<int>(absent.size());
      } else if (channel.mode.kind == ModeKind::kDesignated && !calls.waited_for.empty()) {
        const int drawn = designated_rank(channel.mode.seed, channel.next_round, active);
        if (!channel.waiting[drawn]) {
          calls.waited_for = {{drawn, Stall::Why::kNotCalled, channel.called[drawn]}};
        }
        calls.needed = 1;
      } else {
        const int required =
            std::min<int>(required_ranks(channel.mode, size_), static_cast<int>(active.size()));
        calls.needed = std::max(1, required - static_cast<int>(calls.waiting.size()));
      }
      found.push_back(std::move(calls));
    }
    if (!flush.waiting.empty()) {
      flush.waited_for.insert(flush.waited_for.end(), absent.begin(), absent.end());
      flush.needed = static_cast<int>(flush.waited_for.size());
      if (flush.needed > 0) found.push_back(std::move(flush));
    }
    if (!reduction.waiting.empty()) {
      // Who holds it says so; if nobody does, it is somebody who says nothing.
      if (reduction.waited_for.empty()) reduction.waited_for = std::move(silent);
      reduction.needed = static_cast<int>(reduction.waited_for.size());
      found.push_back(std::move(reduction));
    }
  }
  return found;
}

}  // namespace hvd_partial

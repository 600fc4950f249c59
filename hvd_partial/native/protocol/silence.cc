// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// The coordinator's part for processes that do not answer: stopped, frozen, or
// on a host that does not run them. They are not lost, for their connections
// stand; but no reduction that they take part in can end.
//
// When a round does not end somewhere, rank 0 asks everybody (Freeze), and no
// round ends anywhere until it has decided (Thaw). Those who do not answer in
// time are left out of the rounds from there on (Members), where the mode can do
// without them. If the round under way has ended on some ranks, one of these
// gives its result to the others (Deliver). If it has ended nowhere, it ends
// without a result (Defer): the reduction that was begun stays as it is, with all
// that was put into it. When the silent are back, they get what they have missed
// (Deliver), the reduction ends by itself on all ranks, and its sum is the result
// of the round that is next then (Activate::deferred).

#include <algorithm>
#include <cstdio>

#include "protocol/coordinator.h"

namespace hvd_partial {
namespace {

// Of the time after which a rank is left out: half until a rank reports that a
// round does not end there (engine/channel.cc), half for the answers.
constexpr double kAnswerShare = 0.5;
// If rank 0 itself was late, answers may lie here unread: so much more time.
constexpr double kLateShare = 0.125;

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

}  // namespace

std::string Coordinator::objection_to_frozen(const Frozen& message) const {
  if (message.number == 0 || message.number > census_.number) return "nobody has asked for it";
  for (std::size_t id = 0; id < message.published.size(); ++id) {
    const std::uint64_t rounds = id < channels_.size() ? channels_[id].next_round : 0;
    if (message.published[id] > rounds) {
      return "it has " + std::to_string(message.published[id]) + " rounds of channel " +
             std::to_string(id) + ", which has had " + std::to_string(rounds);
    }
  }
  return {};
}

// A round does not end, and the mode could do without somebody.
bool Coordinator::held_by_silence(const ChannelState& channel) const {
  if (channel.max_lag == 0 || !channel.rejection.empty()) return false;
  const auto active =
      std::count(channel.presence.begin(), channel.presence.end(), Presence::kActive);
  if (required_ranks(channel.mode, size_) >= active) return false;
  return std::any_of(channel.held.begin(), channel.held.end(),
                     [](const HeldRound& held) { return held.cause == HeldCause::kReducing; });
}

void Coordinator::suspect(double now, std::vector<Outgoing>* out) {
  suspicion_ = kNever;
  const bool held = std::any_of(channels_.begin(), channels_.end(),
                                [this](const auto& channel) { return held_by_silence(channel); });
  if (!held) return;
  ++census_.number;
  census_.under_way = true;
  census_.extended = false;
  census_.begun = now;
  census_.deadline = now + kAnswerShare * leave_out_seconds_;
  census_.asked.assign(size_, false);
  census_.answered.assign(size_, false);
  census_.returned.assign(size_, false);
  census_.published.resize(size_);
  for (int rank = size_ - 1; rank >= 0; --rank) {
    if (silent_[rank] || gone_[rank]) continue;  // silent ones have yet to answer an earlier one
    census_.asked[rank] = true;
    out->push_back({rank, Freeze{census_.number}});
  }
}

void Coordinator::frozen(int from, const Frozen& message, double now, std::vector<Outgoing>* out) {
  if (!silent_[from] && (!census_.under_way || message.number != census_.number)) return;
  if (census_.published.empty()) return;
  census_.published[from] = message.published;
  if (silent_[from]) {
    // No round has ended there since it read the question that it had missed.
    silent_[from] = false;
    if (!census_.under_way) {
      come_back(from, now, out);
      for (ChannelState& channel : channels_) trigger(&channel, now, out);
      return;
    }
    census_.asked[from] = true;
    census_.returned[from] = true;
  }
  census_.answered[from] = true;
  if (census_.answered == census_.asked) end_freeze(now, out);
}

void Coordinator::end_freeze(double now, std::vector<Outgoing>* out) {
  const bool complete = census_.answered == census_.asked;
  if (!complete && !census_.extended && now > census_.deadline + kLateShare * leave_out_seconds_) {
    census_.extended = true;
    census_.deadline = now + kLateShare * leave_out_seconds_;
    return;
  }
  census_.under_way = false;
  for (int rank = 0; rank < size_; ++rank) {
    if (!census_.asked[rank] || census_.answered[rank] || gone_[rank]) continue;
    silent_[rank] = true;
    silent_since_[rank] = census_.begun;
  }
  for (ChannelState& channel : channels_) leave_out(&channel, out);
  for (int rank = size_ - 1; rank >= 0; --rank) {
    if (census_.returned[rank]) {
      come_back(rank, now, out);
    } else if (census_.answered[rank] || (census_.asked[rank] && gone_[rank])) {
      out->push_back({rank, Thaw{census_.number}});  // the others stay frozen until they are back
    }
  }
  for (ChannelState& channel : channels_) {
    trigger(&channel, now, out);
    if (held_by_silence(channel)) suspicion_ = now + leave_out_seconds_;
  }
}

void Coordinator::leave_out(ChannelState* channel, std::vector<Outgoing>* out) {
  if (channel->max_lag == 0 || !channel->rejection.empty()) return;
  std::vector<int> silent, others;
  int active = 0, active_others = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const Presence presence = channel->presence[rank];
    if (presence == Presence::kAbsent) return;
    active += presence == Presence::kActive ? 1 : 0;
    if (left_out(*channel, rank)) continue;
    if (!silent_[rank]) {
      if (presence == Presence::kLeft) continue;
      others.push_back(rank);
      active_others += presence == Presence::kActive ? 1 : 0;
    } else if (presence == Presence::kActive || presence == Presence::kFlushing) {
      silent.push_back(rank);
    } else if (presence == Presence::kDeparting ||
               channel->completed[rank] < channel->until[rank]) {
      return;  // its last round needs it
    }
  }
  if (silent.empty() || active_others == 0) return;
  if (active_others < std::min(required_ranks(channel->mode, size_), active)) return;

  // The last activated round has ended on all of them, on some or on none; the
  // one before on all or on some. Anything else is the end of a training (a
  // departure, a flush), or ranks that are still catching up: wait for these.
  const auto published = [&](int rank) {
    const auto& rounds = census_.published[rank];
    return channel->id < rounds.size() ? rounds[channel->id] : 0;
  };
  std::uint64_t furthest = 0, hindmost = kNoRound;
  for (const int rank : others) {
    if (!census_.answered[rank] || published(rank) < channel->back_from[rank]) return;
    furthest = std::max(furthest, published(rank));
    hindmost = std::min(hindmost, published(rank));
  }
  const bool in_flight = furthest + 1 == channel->next_round;
  if (hindmost + 1 < furthest || (!in_flight && furthest != channel->next_round)) return;
  if (hindmost < channel->after_deferred) return;
  const bool all_ended = hindmost == channel->next_round;
  if (!all_ended && !channel->last_can_be_deferred) return;

  const int ahead = *std::find_if(others.begin(), others.end(),
                                  [&](int rank) { return published(rank) == furthest; });
  for (const int rank : others) {
    if (published(rank) == furthest) continue;
    const Deliver message{channel->id, hindmost, hindmost, ahead, rank};
    out->push_back({ahead, message});
    out->push_back({rank, message});
  }
  const auto tell = [&](const Message& message) {
    for (int rank = size_ - 1; rank >= 0; --rank) {
      if (channel->presence[rank] != Presence::kLeft) out->push_back({rank, message});
    }
  };
  if (in_flight) {
    // Those that have left, but still take part in it, end it as any other.
    channel->deferred.push_back({furthest, channel->last_members});
    channel->after_deferred = channel->next_round;
    tell(Defer{channel->id, furthest});
  }
  for (const int rank : silent) {
    channel->left_out_from[rank] = channel->next_round;
    channel->left_in_round[rank] = in_flight;
  }
  // At once, so that results are kept for them.
  channel->members_changed = false;
  tell(members_of(*channel));
  notices_.push_back("channel '" + channel->name + "': " + Stall::list(silent) +
                     (silent.size() == 1 ? " does" : " do") +
                     " not answer (stopped, or on an overloaded host); rounds from " +
                     std::to_string(channel->next_round) +
                     " on are made without, as long as there is room in the ring of " +
                     std::to_string(channel->max_lag) + " results");
}

void Coordinator::come_back(int rank, double now, std::vector<Outgoing>* out) {
  const std::vector<std::uint64_t>& published = census_.published[rank];
  for (ChannelState& channel : channels_) {
    const std::uint64_t first = channel.left_out_from[rank];
    if (first == kNoRound) continue;
    const bool ended = channel.id < published.size() && published[channel.id] >= first;
    if (ended && channel.left_in_round[rank]) {
      // It ended the round that was deferred, in the very moment that it was
      // stopped, before all that it had to send had left it.
      out->push_back(
          {kEverybody, Aborted{rank, "it was stopped while round " + std::to_string(first - 1) +
                                         " of channel '" + channel.name +
                                         "' ended there, and the others, who could not end it, "
                                         "have gone on without; restart from a checkpoint"}});
      return;
    }
    channel.left_out_from[rank] = kNoRound;
    channel.back_from[rank] = channel.next_round;
    channel.members_changed = true;
    if (first < channel.next_round) {
      const Deliver message{channel.id, first, channel.next_round - 1, donor(channel, first, rank),
                            rank};
      out->push_back({message.from, message});
      out->push_back({rank, message});
    }
    notices_.push_back("channel '" + channel.name + "': rank " + std::to_string(rank) +
                       " answers again after " + seconds_text(now - silent_since_[rank]) +
                       " and gets the " + std::to_string(channel.next_round - first) +
                       " rounds that were made without it");
  }
  out->push_back({rank, Thaw{census_.number}});
}

// Whoever is there has all rounds since, or gets them itself; if nobody is,
// those who left last have them.
int Coordinator::donor(const ChannelState& channel, std::uint64_t first, int except) const {
  int found = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == except || left_out(channel, rank) || silent_[rank]) continue;
    if (channel.presence[rank] != Presence::kLeft) return rank;
    if (channel.until[rank] > first && channel.until[rank] >= channel.next_round) found = rank;
  }
  return found;
}

bool Coordinator::anybody_left_out(const ChannelState& channel) const {
  return std::any_of(channel.left_out_from.begin(), channel.left_out_from.end(),
                     [](std::uint64_t from) { return from != kNoRound; });
}

bool Coordinator::out_of_room(const ChannelState& channel) const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!left_out(channel, rank)) continue;
    const std::uint64_t oldest = std::min(channel.applied[rank], channel.left_out_from[rank]);
    if (channel.next_round >= oldest + channel.max_lag) return true;
  }
  return false;
}

const Coordinator::Deferred* Coordinator::complete_deferred(const ChannelState& channel) const {
  for (const Deferred& deferred : channel.deferred) {
    bool complete = true;
    for (int rank = 0; rank < size_ && complete; ++rank) {
      complete = !deferred.members[rank] || !silent_[rank];
    }
    if (complete) return &deferred;
  }
  return nullptr;
}

void Coordinator::give_deferred(const ChannelState& channel, const Deferred& deferred,
                                std::vector<Outgoing>* out) const {
  const auto there = [&](int rank) {
    return channel.presence[rank] != Presence::kLeft && !left_out(channel, rank);
  };
  int from = -1;
  for (int rank = size_ - 1; rank >= 0; --rank) {
    if (there(rank) && deferred.members[rank]) from = rank;
  }
  for (int rank = 0; rank < size_ && from >= 0; ++rank) {
    if (!there(rank) || deferred.members[rank]) continue;
    const Deliver message{channel.id, channel.next_round, channel.next_round, from, rank};
    out->push_back({from, message});
    out->push_back({rank, message});
  }
}

}  // namespace hvd_partial

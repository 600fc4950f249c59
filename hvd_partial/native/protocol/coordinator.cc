// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/coordinator.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace hvd_partial {
namespace {

// First line in which two signatures differ, as a sentence.
std::string describe_difference(const std::string& name, int first_rank, const std::string& first,
                                int other_rank, const std::string& other) {
  std::istringstream a(first), b(other);
  std::string line_a, line_b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a) line_a = "nothing more";
    if (!more_b) line_b = "nothing more";
    if (line_a != line_b || (!more_a && !more_b)) break;
  }
  return "the ranks disagree about channel '" + name + "': rank " + std::to_string(first_rank) +
         " has '" + line_a + "' where rank " + std::to_string(other_rank) + " has '" + line_b +
         "'. Give every rank the same tensors (number, order, shapes, dtypes) and the same "
         "options.";
}

// Signs of life to ranks that have left: often enough for any silence limit
// that makes sense, seldom enough to cost nothing.
constexpr double kStillTrainingInterval = 1.0;

}  // namespace

Coordinator::Coordinator(int size)
    : size_(size), gone_(size, false), silent_(size, false), silent_since_(size, 0.0) {
  active_.reserve(size);
}

const Coordinator::ChannelState* Coordinator::find(const std::string& name) const {
  for (const auto& channel : channels_) {
    if (channel.name == name) return &channel;
  }
  return nullptr;
}

Coordinator::ChannelState* Coordinator::find(const std::string& name) {
  return const_cast<ChannelState*>(std::as_const(*this).find(name));
}

Coordinator::ChannelState* Coordinator::find(ChannelId id) {
  return id < channels_.size() ? &channels_[id] : nullptr;
}

std::string Coordinator::objection_to_channel(int from, ChannelId id) const {
  if (id >= channels_.size()) return "there is no channel " + std::to_string(id);
  if (channels_[id].presence[from] == Presence::kAbsent) {
    return "it has not opened channel '" + channels_[id].name + "'";
  }
  return {};
}

std::string Coordinator::objection(int from, const Message& message) const {
  if (const auto* m = std::get_if<Call>(&message)) {
    std::string why = objection_to_channel(from, m->channel);
    if (why.empty() && m->round > channels_[m->channel].next_round) {
      why = "it calls for round " + std::to_string(m->round) + " of channel '" +
            channels_[m->channel].name + "', whose next one is " +
            std::to_string(channels_[m->channel].next_round);
    }
    return why;
  }
  if (const auto* m = std::get_if<Flush>(&message)) return objection_to_channel(from, m->channel);
  if (const auto* m = std::get_if<Leave>(&message)) return objection_to_channel(from, m->channel);
  if (const auto* m = std::get_if<SetMode>(&message)) {
    return m->channel == kAllChannels ? std::string() : objection_to_channel(from, m->channel);
  }
  if (const auto* m = std::get_if<Exclude>(&message)) {
    return objection_to_channel(from, m->channel);
  }
  if (const auto* m = std::get_if<Decide>(&message)) return objection_to_channel(from, m->channel);
  if (const auto* m = std::get_if<Held>(&message)) return objection_to_channel(from, m->channel);
  if (const auto* m = std::get_if<Frozen>(&message)) return objection_to_frozen(*m);
  if (const auto* m = std::get_if<OpenChannel>(&message)) {
    const ChannelState* channel = find(m->name);
    if (channel != nullptr && channel->presence[from] != Presence::kAbsent && !gone_[from]) {
      return "it has opened channel '" + m->name + "' before";
    }
  }
  return {};
}

void Coordinator::handle(int from, const Message& message, double now, std::vector<Outgoing>* out) {
  if (const auto* m = std::get_if<Call>(&message)) {
    call(from, *m, now, out);
  } else if (const auto* m = std::get_if<OpenChannel>(&message)) {
    open(from, *m, now, out);
  } else if (const auto* m = std::get_if<SetMode>(&message)) {
    set_mode(*m, now, out);
  } else if (const auto* m = std::get_if<Exclude>(&message)) {
    if (ChannelState* channel = find(m->channel)) {
      exclude(channel, m->bits, m->drop);
      trigger(channel, now, out);
    }
  } else if (const auto* m = std::get_if<Decide>(&message)) {
    decide(*m, now, out);
  } else if (const auto* m = std::get_if<Flush>(&message)) {
    ChannelState* channel = find(m->channel);
    if (channel != nullptr && channel->presence[from] == Presence::kActive) {
      channel->presence[from] = Presence::kFlushing;
      channel->waiting[from] = false;
      channel->arrived[from] = now;
      trigger(channel, now, out);
    }
  } else if (const auto* m = std::get_if<Leave>(&message)) {
    leave(from, find(m->channel), *m, now, out);
  } else if (std::holds_alternative<Goodbye>(message)) {
    goodbye(from, now, out);
  } else if (const auto* m = std::get_if<Abort>(&message)) {
    out->push_back({kEverybody, Aborted{from, m->reason}});
  } else if (const auto* m = std::get_if<Held>(&message)) {
    held(from, *m, now);
  } else if (const auto* m = std::get_if<Frozen>(&message)) {
    frozen(from, *m, now, out);
  }
  // Anything else is not for a coordinator; a rank of this build never sends it.
}

void Coordinator::open(int from, const OpenChannel& message, double now,
                       std::vector<Outgoing>* out) {
  ChannelState* channel = find(message.name);
  if (channel == nullptr) {
    if (channels_.size() >= kAllChannels) {
      out->push_back(
          {from, ChannelRejected{message.name, "there are " + std::to_string(channels_.size()) +
                                                   " channels already"}});
      return;
    }
    ChannelState created;
    created.id = static_cast<ChannelId>(channels_.size());
    created.name = message.name;
    created.signature = message.signature;
    created.first_opener = from;
    created.mode = default_mode_.value_or(message.mode);
    created.grace_option = message.grace_seconds;
    created.presence.assign(size_, Presence::kAbsent);
    for (int rank = 0; rank < size_; ++rank) {
      if (gone_[rank]) created.presence[rank] = Presence::kLeft;
    }
    created.until.assign(size_, 0);
    created.completed.assign(size_, 0);
    created.waiting.assign(size_, false);
    created.arrived.assign(size_, 0);
    created.called.assign(size_, -1);
    created.held.assign(size_, HeldRound{});
    created.max_lag = message.max_lag;
    created.applied.assign(size_, 0);
    created.left_out_from.assign(size_, kNoRound);
    created.left_in_round.assign(size_, false);
    created.back_from.assign(size_, 0);
    created.last_members.assign(size_, false);
    channels_.push_back(std::move(created));
    channel = &channels_.back();
  }

  if (channel->rejection.empty() && channel->signature != message.signature) {
    channel->rejection = describe_difference(channel->name, channel->first_opener,
                                             channel->signature, from, message.signature);
    for (int rank = 0; rank < size_; ++rank) {
      const bool opened = channel->presence[rank] != Presence::kAbsent && !gone_[rank];
      if (opened) out->push_back({rank, ChannelRejected{channel->name, channel->rejection}});
    }
  }
  channel->presence[from] = Presence::kActive;
  channel->members_changed = true;
  if (!channel->rejection.empty()) {
    out->push_back({from, ChannelRejected{channel->name, channel->rejection}});
    return;
  }
  out->push_back({from, ChannelOpened{channel->name, channel->id}});
  trigger(channel, now, out);
}

void Coordinator::call(int from, const Call& message, double now, std::vector<Outgoing>* out) {
  ChannelState* channel = find(message.channel);
  if (channel == nullptr || channel->presence[from] != Presence::kActive) return;
  channel->called[from] = now;
  channel->applied[from] = std::max(channel->applied[from], message.round);

  if (message.round < channel->next_round) {
    // Too late for the round it was computing for; how late, the grace learns.
    const double quorum = channel->grace.quorum_time(message.round);
    if (quorum >= 0) channel->grace.on_deviation(now - quorum);
  } else if (message.waiting && message.round == channel->next_round && !channel->waiting[from]) {
    channel->waiting[from] = true;
    channel->arrived[from] = now;
    const double quorum = channel->grace.quorum_time(message.round);
    if (quorum >= 0) channel->grace.on_deviation(now - quorum);
    trigger(channel, now, out);
  }

  if (now >= still_training_sent_ + kStillTrainingInterval) {
    still_training_sent_ = now;
    for (int rank = 0; rank < size_; ++rank) {
      if (gone_[rank]) out->push_back({rank, StillTraining{}});
    }
  }
}

void Coordinator::set_mode(const SetMode& message, double now, std::vector<Outgoing>* out) {
  if (!valid(message.mode, size_)) return;  // checked where it was set
  if (message.channel != kAllChannels) {
    if (ChannelState* channel = find(message.channel)) {
      channel->mode = message.mode;
      channel->deadline = kNever;
      trigger(channel, now, out);
    }
    return;
  }
  default_mode_ = message.mode;
  for (auto& channel : channels_) {
    channel.mode = message.mode;
    channel.deadline = kNever;
    trigger(&channel, now, out);
  }
}

void Coordinator::exclude(ChannelState* channel, const std::vector<std::uint64_t>& bits,
                          bool drop) {
  const bool any = std::any_of(bits.begin(), bits.end(), [](auto word) { return word != 0; });
  channel->excluded = any ? bits : std::vector<std::uint64_t>();
  channel->drop_excluded = any && drop;
  channel->exclusion_void = false;
  channel->members_changed = true;
  channel->deadline = kNever;
}

void Coordinator::decide(const Decide& message, double now, std::vector<Outgoing>* out) {
  ChannelState* channel = find(message.channel);
  if (channel == nullptr || message.number <= channel->decided) return;
  if (!valid(message.mode, size_)) return;  // checked where it was decided
  channel->decided = message.number;
  channel->mode = message.mode;
  exclude(channel, message.excluded, message.drop);
  trigger(channel, now, out);
}

void Coordinator::leave(int from, ChannelState* channel, const Leave& message, double now,
                        std::vector<Outgoing>* out) {
  if (channel == nullptr) return;
  channel->completed[from] = std::max(channel->completed[from], message.round);
  Presence& presence = channel->presence[from];
  if (presence == Presence::kDeparting || presence == Presence::kLeft) return;
  const bool contributes = message.holds_contribution && presence != Presence::kAbsent;
  if (presence != Presence::kAbsent) channel->until[from] = channel->next_round;
  presence = contributes ? Presence::kDeparting : Presence::kLeft;
  channel->members_changed = true;
  channel->waiting[from] = false;
  trigger(channel, now, out);
}

void Coordinator::goodbye(int from, double now, std::vector<Outgoing>* out) {
  if (gone_[from]) return;
  gone_[from] = true;
  // Leave messages came before, for the channels that this rank had opened.
  for (auto& channel : channels_) leave(from, &channel, {}, now, out);
  if (all_gone()) out->push_back({kEverybody, AllGone{}});
}

bool Coordinator::all_gone() const {
  return std::all_of(gone_.begin(), gone_.end(), [](bool gone) { return gone; });
}

bool Coordinator::on_peer_lost(int peer, const std::string& reason, std::vector<Outgoing>* out) {
  if (gone_[peer]) {
    // It stopped waiting for the others. But a round that it takes part in, and
    // has not completed, cannot end without it.
    bool needed = false;
    for (const auto& channel : channels_) {
      needed |= channel.presence[peer] == Presence::kDeparting ||
                channel.completed[peer] < channel.until[peer];
      for (const Deferred& deferred : channel.deferred) needed |= deferred.members[peer];
    }
    if (!needed) return false;
  }
  out->push_back({kEverybody, PeerLost{peer, reason}});
  return true;
}

void Coordinator::leave_out_excluded(ChannelState* channel) {
  if (channel->excluded.empty()) return;
  bool nobody_else = true;
  for (int rank = 0; rank < size_ && nobody_else; ++rank) {
    const Presence presence = channel->presence[rank];
    const bool there = presence == Presence::kActive || presence == Presence::kFlushing;
    nobody_else = !there || has_rank(channel->excluded, rank);
  }
  if (nobody_else != channel->exclusion_void) {
    channel->exclusion_void = nobody_else;
    channel->members_changed = true;
  }
  const auto excluded = [&](int rank) { return has_rank(channel->excluded, rank); };
  // While the others flush, rounds are those of the excluded.
  if (std::all_of(active_.begin(), active_.end(), excluded)) return;
  active_.erase(std::remove_if(active_.begin(), active_.end(), excluded), active_.end());
}

bool Coordinator::quorum_reached(const ChannelState& channel, const std::vector<int>& active,
                                 int counting) const {
  if (channel.mode.kind == ModeKind::kDesignated) {
    return channel.waiting[designated_rank(channel.mode.seed, channel.next_round, active)];
  }
  const auto waiting =
      std::count_if(active.begin(), active.end(), [&](int rank) { return channel.waiting[rank]; });
  return waiting >= std::min(required_ranks(channel.mode, size_), counting);
}

double Coordinator::grace_of(const ChannelState& channel) const {
  switch (channel.mode.kind) {
    case ModeKind::kSync:
    case ModeKind::kAsync:
      return 0;
    case ModeKind::kSolo:
    case ModeKind::kDesignated:
      return std::max(channel.grace_option, 0.0);
    case ModeKind::kMajority:
    case ModeKind::kQuorum:
      return channel.grace_option >= 0 ? channel.grace_option : channel.grace.seconds();
  }
  return 0;
}

void Coordinator::note_quorum(ChannelState* channel, double now) {
  if (channel->grace.quorum_time(channel->next_round) >= 0) return;
  channel->grace.on_quorum(channel->next_round, now);
  for (int rank : active_) {
    const bool completed_it = channel->arrived[rank] == now;
    if (channel->waiting[rank] && !completed_it) {
      channel->grace.on_deviation(now - channel->arrived[rank]);
    }
  }
}

void Coordinator::trigger(ChannelState* channel, double now, std::vector<Outgoing>* out) {
  if (!channel->rejection.empty() || census_.under_way) return;
  active_.clear();
  bool flushing = false;
  for (int rank = 0; rank < size_; ++rank) {
    switch (channel->presence[rank]) {
      case Presence::kAbsent:
        return;  // rounds start when everybody who has not left has opened the channel
      case Presence::kActive:
        active_.push_back(rank);
        break;
      case Presence::kFlushing:
        flushing = true;
        break;
      case Presence::kDeparting:
      case Presence::kLeft:
        break;
    }
  }
  while (const Deferred* deferred = complete_deferred(*channel)) {
    if (out_of_room(*channel)) return;
    const std::uint64_t round = deferred->round;
    give_deferred(*channel, *deferred, out);
    channel->deferred.erase(channel->deferred.begin() + (deferred - channel->deferred.data()));
    activate(channel, /*flush=*/false, now, out, round);
  }
  if (active_.empty()) {
    // Nobody has met all ranks as long as one of them is left out.
    const bool complete = channel->deferred.empty() && !anybody_left_out(*channel);
    if (flushing && complete) activate(channel, /*flush=*/true, now, out);
    return;
  }
  leave_out_excluded(channel);
  const int counting = static_cast<int>(active_.size());
  const auto absent = [&](int rank) { return left_out(*channel, rank); };
  active_.erase(std::remove_if(active_.begin(), active_.end(), absent), active_.end());
  if (active_.empty() || out_of_room(*channel) || !quorum_reached(*channel, active_, counting)) {
    channel->deadline = kNever;
    return;
  }
  note_quorum(channel, now);
  const bool everybody =
      std::all_of(active_.begin(), active_.end(), [&](int rank) { return channel->waiting[rank]; });
  if (!everybody) {
    if (channel->deadline == kNever) channel->deadline = now + grace_of(*channel);
    if (now < channel->deadline) return;
  }
  activate(channel, /*flush=*/false, now, out);
}

Members Coordinator::members_of(const ChannelState& channel) const {
  Members members{channel.id, std::vector<std::uint64_t>((size_ + 63) / 64, 0), {}, false};
  if (!channel.exclusion_void) {
    members.excluded = channel.excluded;
    members.drop = channel.drop_excluded;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (channel.presence[rank] == Presence::kLeft) continue;
    if (!left_out(channel, rank)) add_rank(&members.bits, rank);
    members.keep_from = std::min(members.keep_from, channel.left_out_from[rank]);
  }
  return members;
}

void Coordinator::announce_members(ChannelState* channel, std::vector<Outgoing>* out) {
  if (!channel->members_changed) return;
  channel->members_changed = false;
  const Members message = members_of(*channel);
  for (int rank = 0; rank < size_; ++rank) {
    if (channel->presence[rank] != Presence::kLeft) out->push_back({rank, message});
  }
}

void Coordinator::activate(ChannelState* channel, bool flush, double now,
                           std::vector<Outgoing>* out, std::uint64_t deferred) {
  if (channel->grace.quorum_time(channel->next_round) < 0) {
    channel->grace.on_quorum(channel->next_round, now);
  }
  announce_members(channel, out);
  const Activate message{channel->id, channel->next_round, channel->mode, flush, deferred};
  channel->last_can_be_deferred = !flush && deferred == kNoRound;
  for (int rank = 0; rank < size_; ++rank) {
    Presence& presence = channel->presence[rank];
    channel->last_members[rank] = presence != Presence::kLeft && !left_out(*channel, rank);
    if (presence == Presence::kLeft) continue;
    out->push_back({rank, message});
    if (presence == Presence::kDeparting && deferred == kNoRound) {
      presence = Presence::kLeft;
      channel->until[rank] = channel->next_round + 1;
      channel->members_changed = true;
    }
    if (presence == Presence::kFlushing && flush) presence = Presence::kActive;
  }
  std::fill(channel->waiting.begin(), channel->waiting.end(), false);
  channel->deadline = kNever;
  ++channel->next_round;
}

void Coordinator::tick(double now, std::vector<Outgoing>* out) {
  for (auto& channel : channels_) {
    if (channel.deadline <= now) trigger(&channel, now, out);
  }
  if (census_.under_way) {
    if (census_.deadline <= now) end_freeze(now, out);
  } else if (suspicion_ <= now) {
    suspect(now, out);
  }
}

double Coordinator::next_deadline() const {
  double deadline = census_.under_way ? census_.deadline : suspicion_;
  // While no round can start, the end of a grace means nothing.
  if (census_.under_way) return deadline;
  for (const auto& channel : channels_) deadline = std::min(deadline, channel.deadline);
  return deadline;
}

double Coordinator::grace_seconds(ChannelId channel) const {
  return channel < channels_.size() ? grace_of(channels_[channel]) : -1;
}

std::string Coordinator::describe() const {
  constexpr char kPresence[] = {'-', 'A', 'F', 'D', 'L'};
  std::ostringstream text;
  for (const ChannelState& channel : channels_) {
    text << "channel '" << channel.name << "': round " << channel.next_round << ", "
         << to_string(channel.mode) << ", ranks ";
    for (const Presence presence : channel.presence) {
      text << kPresence[static_cast<std::size_t>(presence)];
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (channel.completed[rank] < channel.until[rank]) text << ", still needs " << rank;
    }
    text << (channel.members_changed ? " (changed)" : "") << ", waiting ";
    for (const bool waiting : channel.waiting) text << (waiting ? '1' : '0');
    if (!channel.excluded.empty()) {
      text << ", excluded ";
      for (int rank = 0; rank < size_; ++rank)
        text << (has_rank(channel.excluded, rank) ? '1' : '0');
      text << (channel.drop_excluded ? " (dropped)" : "")
           << (channel.exclusion_void ? " (void)" : "");
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (left_out(channel, rank)) {
        text << ", without " << rank << " from " << channel.left_out_from[rank];
      }
    }
    for (const Deferred& deferred : channel.deferred) text << ", deferred " << deferred.round;
    text << (channel.deadline == kNever ? "" : ", in grace")
         << (channel.rejection.empty() ? "" : ", rejected") << '\n';
  }
  text << "gone ";
  for (const bool gone : gone_) text << (gone ? '1' : '0');
  return text.str();
}

}  // namespace hvd_partial

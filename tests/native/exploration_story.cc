// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// A world as a key, and for people.

#include <algorithm>
#include <sstream>
#include <variant>

#include "exploration_world.h"

namespace hvd_partial {
namespace {

std::string text_of(const Message& message) {
  std::ostringstream text;
  if (const auto* m = std::get_if<Call>(&message)) {
    text << "Call " << m->round << (m->waiting ? " waiting" : "");
  } else if (const auto* m = std::get_if<SetMode>(&message)) {
    text << "SetMode " << to_string(m->mode);
  } else if (const auto* m = std::get_if<Leave>(&message)) {
    text << "Leave " << m->round << (m->holds_contribution ? " holding" : "");
  } else if (const auto* m = std::get_if<Members>(&message)) {
    text << "Members " << m->bits.at(0);
  } else if (const auto* m = std::get_if<Activate>(&message)) {
    text << "Activate " << m->round << ' ' << to_string(m->mode) << (m->flush ? " flush" : "");
  } else if (const auto* m = std::get_if<PeerLost>(&message)) {
    text << "PeerLost " << m->peer;
  } else {
    constexpr const char* kNames[] = {
        "OpenChannel", "Call",     "SetMode",       "Flush",           "Leave",
        "Goodbye",     "Abort",    "ChannelOpened", "ChannelRejected", "Members",
        "Activate",    "PeerLost", "Aborted",       "StillTraining",   "AllGone"};
    text << kNames[message.index()];
  }
  return text.str();
}

std::uint64_t moved(std::uint64_t bits, const std::array<int, World::kMostRanks>& place) {
  std::uint64_t result = 0;
  for (int i = 0; i < World::kMostRanks; ++i) {
    if (has(bits, i)) result |= bit(place[static_cast<std::size_t>(i)]);
  }
  return result;
}

}  // namespace

std::string World::Event::describe() const {
  constexpr const char* kNames[] = {"acts",      "is heard", "hears",   "joins",
                                    "publishes", "dies",     "notices", "the grace ends"};
  const std::string what = kNames[static_cast<std::size_t>(kind)];
  return kind == Kind::kGraceEnds ? what : name(rank) + ' ' + what;
}

void World::put(const Message& message, const std::array<int, kMostRanks>& place,
                KeyWriter* key) const {
  key->put(message.index());
  if (const auto* m = std::get_if<Call>(&message)) {
    key->put(m->round << 1 | std::uint64_t{m->waiting});
  } else if (const auto* m = std::get_if<SetMode>(&message)) {
    key->put(m->mode);
  } else if (const auto* m = std::get_if<Leave>(&message)) {
    key->put(m->round << 1 | std::uint64_t{m->holds_contribution});
  } else if (const auto* m = std::get_if<Members>(&message)) {
    key->put(moved(m->bits.at(0), place));
  } else if (const auto* m = std::get_if<Activate>(&message)) {
    key->put(m->round << 1 | std::uint64_t{m->flush});
    key->put(m->mode);
  } else if (const auto* m = std::get_if<PeerLost>(&message)) {
    key->put(static_cast<std::uint64_t>(m->peer));
  }
}

void World::put(const Rank& rank, const std::array<int, kMostRanks>& place, KeyWriter* key) const {
  key->put(static_cast<std::uint64_t>(rank.fate) | std::uint64_t{rank.notices_death} << 2 |
           std::uint64_t{rank.all_gone} << 3 | std::uint64_t{rank.gone} << 4 |
           std::uint64_t{rank.opened} << 5);
  key->put(std::uint64_t{rank.heard_open} | std::uint64_t{rank.heard_flush} << 1 |
           std::uint64_t{rank.heard_leave} << 2 |
           std::uint64_t{rank.heard_call == static_cast<int>(activated())} << 3 |
           std::uint64_t{rank.joined.has_value()} << 4);
  key->put(rank.up.size());
  for (const Message& message : rank.up) put(message, place, key);
  if (rank.fate == Fate::kFailed) return;
  key->put(rank.held.size());
  if (rank.fate == Fate::kDead) return;
  key->put(rank.down.size());
  for (const Message& message : rank.down) put(message, place, key);
  for (const Held& held : rank.held) key->put(held.applied << 1 | std::uint64_t{held.full_weight});
  key->put(static_cast<std::uint64_t>(rank.phase));
  if (rank.phase == Phase::kDepositing) {
    key->put(rank.depositing.applied << 1 | std::uint64_t{rank.depositing.full_weight});
  }
  key->put(rank.next);
  key->put(static_cast<std::uint64_t>(rank.asked + 1));
  key->put(rank.applied);
  key->put(rank.reading.size());
  key->put(rank.known_mode);
  key->put(moved(rank.coming_members, place));
  for (const std::uint64_t bits : rank.activated_members) key->put(moved(bits, place));
  ProtocolState::put(rank.member, rank.phase == Phase::kWaiting, key);
}

// Ranks with the same program may change places: neither the coordinator nor a
// member compares rank numbers, but for the draw of the designated mode; and
// rank 0 and the victim have a part of their own in a failure.
Key World::key(bool symmetry) const {
  std::vector<int> order;
  for (int i = 0; i < size_; ++i) order.push_back(i);
  Key smallest = key(order);
  if (!symmetry || job_->mode.kind == ModeKind::kDesignated) return smallest;
  const auto stays = [this](int i) { return job_->victim >= 0 && (i == 0 || i == job_->victim); };
  while (std::next_permutation(order.begin(), order.end())) {
    bool same = true;
    for (int i = 0; i < size_; ++i) {
      const int other = order[static_cast<std::size_t>(i)];
      same &= i == other || (!stays(i) && !stays(other) && program(i) == program(other));
    }
    if (same) smallest = std::min(smallest, key(order));
  }
  return smallest;
}

Key World::key(const std::vector<int>& order) const {
  std::array<int, kMostRanks> place{};
  for (int i = 0; i < size_; ++i) {
    place[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = i;
  }
  KeyWriter key;
  key.put(std::uint64_t{died_} | std::uint64_t{over_} << 1);
  if (coordinator_lives()) {
    ProtocolState::put(*coordinator_, order, &key);
    key.put(mode_);
    key.put(moved(announced_, place));
  }
  for (const int i : order) put(rank(i), place, &key);
  key.put(first_);
  key.put(flush_end_);
  key.put(rounds_.size());
  for (const Round& round : rounds_) {
    key.put(moved(round.members, place));
    key.put(moved(round.published, place));
    key.put(moved(round.joined, place));
    if (round.joined == round.members) {
      key.put(std::uint64_t{round.contributions > 0});
      continue;
    }
    key.put(round.mode);
    key.put(std::uint64_t{round.flush});
    key.put(moved(round.quorum, place));
    key.put(static_cast<std::uint64_t>(round.required));
    key.put(moved(round.contributors, place));
    key.put(std::uint64_t{round.contributions > 0});
  }
  return key.finish();
}

std::string World::describe() const {
  std::ostringstream text;
  text << coordinator_->describe();
  for (int i = 0; i < size_; ++i) {
    const Rank& rank = this->rank(i);
    text << "\nrank " << i << ": ";
    if (rank.fate == Fate::kDead) text << "dead, ";
    if (rank.fate == Fate::kFailed) text << "failed, ";
    constexpr const char* kPhases[] = {"idle", "depositing", "waiting", "flushing", "reading"};
    text << program(i) << " at " << rank.next << ", "
         << kPhases[static_cast<std::size_t>(rank.phase)] << (rank.gone ? ", gone; " : "; ")
         << rank.member.describe();
    for (const Message& message : rank.up) text << "; ^ " << text_of(message);
    for (const Message& message : rank.down) text << "; v " << text_of(message);
  }
  for (std::size_t i = 0; i < rounds_.size(); ++i) {
    const Round& round = rounds_[i];
    text << "\nround " << first_ + i << ": " << to_string(round.mode)
         << (round.flush ? ", flush" : "") << ", members " << round.members << ", joined "
         << round.joined << ", published " << round.published << ", " << round.contributions
         << " contributions";
  }
  return text.str();
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "exploration_key.h"

namespace hvd_partial {

void ProtocolState::put(const Coordinator& coordinator, const std::vector<int>& order,
                        KeyWriter* key) {
  key->put(coordinator.channels_.size());
  for (const auto& channel : coordinator.channels_) {
    key->put(channel.next_round);
    key->put(channel.mode);
    key->put(std::uint64_t{channel.members_changed} | std::uint64_t{channel.deadline != kNever}
                                                          << 1);
    for (const int rank : order) {
      key->put(static_cast<std::uint64_t>(channel.presence[rank]) |
               std::uint64_t{channel.waiting[rank]} << 3);
      const bool needed = channel.completed[rank] < channel.until[rank];
      key->put(needed ? channel.until[rank] : 0);
    }
  }
  key->put(std::uint64_t{coordinator.default_mode_.has_value()});
  if (coordinator.default_mode_.has_value()) key->put(*coordinator.default_mode_);
  for (const int rank : order) key->put(std::uint64_t{coordinator.gone_[rank]});
}

bool ProtocolState::departing(const Coordinator& coordinator, int rank) {
  return !coordinator.channels_.empty() &&
         coordinator.channels_[0].presence[rank] == Coordinator::Presence::kDeparting;
}

void ProtocolState::put(const Member& member, bool awaits, KeyWriter* key) {
  key->put(member.mode_);
  key->put(std::uint64_t{member.left_} | std::uint64_t{member.depositing_} << 1 |
           static_cast<std::uint64_t>(member.flush_) << 2);
  if (member.flush_ == Member::FlushState::kEnded) key->put(member.flush_end_);
  if (member.depositing_) key->put(member.deposit_weight_);
  if (awaits) key->put(member.awaited_);
  key->put(static_cast<std::uint64_t>(member.contributions_));
  key->put(member.weight_);
  key->put(static_cast<std::uint64_t>(member.skipped_));
  key->put(member.joined_);
  key->put(member.published_);
  key->put(member.unreleased_.size());
  for (const std::uint64_t round : member.unreleased_) key->put(round);
  if (!member.unreleased_.empty()) {
    key->put(member.applied_);
    key->put(static_cast<std::uint64_t>(member.pinned_));
  }
  key->put(member.activated_.size());
  for (const Activate& next : member.activated_) {
    key->put(next.mode);
    key->put(std::uint64_t{next.flush});
  }
}

}  // namespace hvd_partial

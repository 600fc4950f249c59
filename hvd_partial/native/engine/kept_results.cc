// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/kept_results.h"

#include <algorithm>
#include <string>

#include "engine/round_tag.h"

namespace hvd_partial {

KeptResults::KeptResults(Transport* transport, BufferPool* pool, std::size_t bytes, bool keeps)
    : transport_(transport), pool_(pool), bytes_(bytes), keeps_(keeps) {
  entries_.reserve(pool->available());
}

KeptResults::Entry* KeptResults::find(std::uint64_t round) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [round](const Entry& entry) { return entry.round == round; });
  return found == entries_.end() ? nullptr : &*found;
}

void KeptResults::add(std::uint64_t round, std::uint8_t* buffer, bool to_be_read) {
  entries_.push_back({round, buffer, to_be_read, 0});
  newest_ = round;
  trim();
}

void KeptResults::release(std::uint64_t round) {
  if (Entry* entry = find(round)) entry->to_be_read = false;
  trim();
}

void KeptResults::keep_from(std::uint64_t round) {
  keep_from_ = round;
  trim();
}

bool KeptResults::ordered(std::uint64_t round) const {
  return std::any_of(orders_.begin(), orders_.end(), [round](const Deliver& order) {
    return round >= order.first && round <= order.last;
  });
}

void KeptResults::trim() {
  const auto needed = [this](const Entry& entry) {
    if (entry.to_be_read || entry.sends > 0) return true;
    return keeps_ && (entry.round == newest_ || needs(entry.round));
  };
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (needed(*entry)) {
      ++entry;
    } else {
      pool_->give_back(entry->buffer);
      entry = entries_.erase(entry);
    }
  }
}

Status KeptResults::step() {
  bool changed = false;
  for (auto send = sends_.begin(); send != sends_.end();) {
    if (!send->completion.done) {
      ++send;
      continue;
    }
    if (!send->completion.status.ok()) return send->completion.status;
    if (Entry* entry = find(send->round)) --entry->sends;
    send = sends_.erase(send);
    changed = true;
  }
  for (auto order = orders_.begin(); order != orders_.end();) {
    while (order->first <= order->last) {
      Entry* entry = find(order->first);
      if (entry == nullptr) break;
      ++entry->sends;
      Send& send = sends_.emplace_back();
      send.round = order->first;
      transport_->send(order->to, round_tag(order->channel, RoundTransfer::kDelivery, order->first),
                       entry->buffer, bytes_, &send.completion);
      ++order->first;
      changed = true;
    }
    if (order->first > order->last) {
      order = orders_.erase(order);
      continue;
    }
    if (newest_ != kNoRound && order->first <= newest_) {
      return Status(ErrorCode::kInternal, "rank " + std::to_string(transport_->rank()) +
                                              " has to give round " + std::to_string(order->first) +
                                              " to rank " + std::to_string(order->to) +
                                              ", and has it no more");
    }
    ++order;
  }
  if (changed) trim();
  return {};
}

}  // namespace hvd_partial

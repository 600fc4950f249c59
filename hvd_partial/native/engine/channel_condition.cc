// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What a channel says about itself when something takes long or has failed.

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/channel.h"

namespace hvd_partial {

void Channel::record(FlightKind kind, std::uint64_t round, std::int32_t count, std::int32_t other,
                     std::uint8_t detail) const {
  FlightEvent event;
  event.kind = kind;
  event.detail = detail;
  event.channel = recorded_id_.load(std::memory_order_relaxed);
  event.round = round;
  event.count = count;
  event.other = other;
  recorder_->record(event);
}

void Channel::set_number(std::size_t number) {
  number_ = number;
  recorded_id_.store(static_cast<ChannelId>(FlightEvent::kLocal | (number & 0x3FFF)),
                     std::memory_order_relaxed);
  record(FlightKind::kOpen, 0);
}

Channel::Wait Channel::wait_state() const {
  Wait wait;
  wait.id = id_;
  wait.round = member_.published();
  wait.mode = member_.mode();
  wait.told_at = told_at_;
  if (called_at_ >= 0 && !member_.ready()) wait.since = called_at_;
  if (member_.joined() > member_.published()) {
    wait.cause = HeldCause::kReducing;
    wait.held_round = member_.published();
  } else if (member_.activated()) {
    // It can be joined, but is not: this rank gets its result from another one.
    wait.cause = member_.can_join()     ? HeldCause::kReducing
                 : member_.depositing() ? HeldCause::kDepositing
                                        : HeldCause::kRingFull;
    wait.held_round = member_.joined();
  }
  return wait;
}

Channel::Wait Channel::present_wait() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return wait_state();
}

void Channel::set_told(std::string text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  told_ = std::move(text);
  told_at_ = clock_->now();
}

Channel::Condition Channel::condition() {
  Condition condition;
  condition.name = options_.name;
  condition.number = number_;
  // Whoever holds the lock may be what is wrong.
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  for (int tries = 0; !lock.try_lock(); ++tries) {
    if (tries == 200) return condition;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  condition.answers = true;
  condition.wait = wait_state();
  condition.member = member_.describe();
  condition.stats = stats_now();
  condition.applied = member_.applied();
  condition.results = member_.results();
  condition.ring_capacity = static_cast<int>(ring_.size());
  condition.held_contributions = member_.held_contributions();
  condition.free_buffers = pool_.available();
  condition.buffer_bytes = layout_.bytes();
  if (deposited_at_ >= 0) condition.called_ago = clock_->now() - deposited_at_;
  condition.flushing = member_.flushing();
  condition.left = member_.left();
  condition.rejected = rejected_.message();
  condition.told = told_;
  return condition;
}

}  // namespace hvd_partial

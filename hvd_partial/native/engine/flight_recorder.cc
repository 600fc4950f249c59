// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/flight_recorder.h"

namespace hvd_partial {

std::vector<FlightEvent> FlightRecorder::events() const {
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  std::vector<FlightEvent> found;
  found.reserve(kEvents);
  for (std::uint64_t number = end > kEvents ? end - kEvents : 0; number < end; ++number) {
    const Slot& slot = slots_[number % kSlots];
    const std::uint64_t expected = 2 * number + 2;
    if (slot.sequence.load(std::memory_order_acquire) != expected) continue;
    FlightEvent event;
    event.time = slot.time.load(std::memory_order_acquire);
    event.round = slot.round.load(std::memory_order_acquire);
    const std::uint64_t what = slot.what.load(std::memory_order_acquire);
    const std::uint64_t numbers = slot.numbers.load(std::memory_order_acquire);
    if (slot.sequence.load(std::memory_order_relaxed) != expected) continue;
    event.kind = static_cast<FlightKind>(what >> 56);
    event.detail = static_cast<std::uint8_t>(what >> 48);
    event.channel = static_cast<ChannelId>(what >> 32);
    event.peer = static_cast<std::int32_t>(what);
    event.count = static_cast<std::int32_t>(numbers >> 32);
    event.other = static_cast<std::int32_t>(numbers);
    found.push_back(event);
  }
  return found;
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_FLIGHT_RECORDER_H_
#define HVD_PARTIAL_ENGINE_FLIGHT_RECORDER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "protocol/messages.h"

namespace hvd_partial {

enum class FlightKind : std::uint8_t {
  kConnect,   // count: size
  kOpen,      // the user opened a channel
  kOpened,    // its id is known
  kRejected,  // the ranks disagree about it
  kCall,      // the user's thread came; round: applied, count: rounds late
  kDeposit,   // round: asked for, detail: waits, count: contributions held, other: left out
  kReturn,    // the user's thread goes; round: published, detail: flushed, count: results
  kRelease,   // round: applied now, count: results
  kFlush,
  kLeave,      // detail: holds a contribution
  kMode,       // set by the user; detail: kind, count: quorum
  kActivate,   // detail: kind, count: quorum, other: ends a flush
  kJoin,       // count: own contributions, other: ranks that take part
  kPublish,    // detail: kind, count: contributions, other: contributors
  kMembers,    // count: ranks from the next activated round on
  kSend,       // detail: index of the message, peer; other: a Call that waits
  kReceive,    // ...
  kPeerLost,   // peer
  kFailure,    // detail: ErrorCode
  kStall,      // count: ranks waited for, detail: Stall::Kind
  kStallOver,  // ...
  kAbort,
  kClose,
};

struct FlightEvent {
  static constexpr ChannelId kNoChannel = kAllChannels;
  // Of a channel whose id is not known yet: this, and its number on this rank.
  static constexpr ChannelId kLocal = 0x8000;

  double time = 0;
  FlightKind kind = FlightKind::kConnect;
  std::uint8_t detail = 0;
  ChannelId channel = kNoChannel;
  std::int32_t peer = -1;
  std::uint64_t round = 0;
  std::int32_t count = 0;
  std::int32_t other = 0;
};

// The last events of a process, for when something goes wrong. Any thread
// writes at any time without waiting, any thread reads meanwhile: a slot that
// is being written is left out, and so is an event whose slot another one
// holds (a thousand events later).
class FlightRecorder {
 public:
  static constexpr std::size_t kEvents = 1000;

  explicit FlightRecorder(const Clock* clock) : clock_(clock) {}

  // The time is filled in here.
  void record(const FlightEvent& event) {
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    Slot& slot = slots_[number % kSlots];
    // Odd while it is written; even: 2 * number + 2 of what it holds.
    std::uint64_t sequence = slot.sequence.load(std::memory_order_relaxed);
    if ((sequence & 1) != 0 || sequence > 2 * number ||
        !slot.sequence.compare_exchange_strong(sequence, 2 * number + 1, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
      return;
    }
    // Released each: whoever sees one of them sees the odd sequence too.
    slot.time.store(clock_->now(), std::memory_order_release);
    slot.round.store(event.round, std::memory_order_release);
    slot.what.store(static_cast<std::uint64_t>(event.kind) << 56 |
                        static_cast<std::uint64_t>(event.detail) << 48 |
                        static_cast<std::uint64_t>(event.channel) << 32 |
                        static_cast<std::uint32_t>(event.peer),
                    std::memory_order_release);
    slot.numbers.store(static_cast<std::uint64_t>(static_cast<std::uint32_t>(event.count)) << 32 |
                           static_cast<std::uint32_t>(event.other),
                       std::memory_order_release);
    slot.sequence.store(2 * number + 2, std::memory_order_release);
  }

  // The last kEvents of them, oldest first.
  std::vector<FlightEvent> events() const;
  // Ever recorded.
  std::uint64_t recorded() const { return next_.load(std::memory_order_relaxed); }

 private:
  // Some more than are asked for, so that writers do not overtake the reader.
  static constexpr std::size_t kSlots = 1024;

  struct Slot {
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<double> time{0};
    std::atomic<std::uint64_t> round{0};
    std::atomic<std::uint64_t> what{0};
    std::atomic<std::uint64_t> numbers{0};
  };

  const Clock* clock_;
  std::atomic<std::uint64_t> next_{0};
  std::array<Slot, kSlots> slots_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_FLIGHT_RECORDER_H_

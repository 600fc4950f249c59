// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/flight_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <thread>
#include <vector>

namespace hvd_partial {
namespace {

FlightEvent event_of(std::int32_t writer, std::uint64_t number) {
  FlightEvent event;
  event.kind = FlightKind::kReceive;
  event.detail = static_cast<std::uint8_t>(number);
  event.channel = static_cast<ChannelId>(number % 1000);
  event.peer = writer;
  event.round = number;
  event.count = static_cast<std::int32_t>(number);
  event.other = -static_cast<std::int32_t>(number);
  return event;
}

void expect_whole(const FlightEvent& event) {
  EXPECT_EQ(event.kind, FlightKind::kReceive);
  EXPECT_EQ(event.detail, static_cast<std::uint8_t>(event.round));
  EXPECT_EQ(event.channel, event.round % 1000);
  EXPECT_EQ(event.count, static_cast<std::int32_t>(event.round));
  EXPECT_EQ(event.other, -event.count);
}

TEST(FlightRecorder, KeepsEveryField) {
  const SteadyClock clock;
  FlightRecorder recorder(&clock);
  EXPECT_TRUE(recorder.events().empty());
  const double before = clock.now();
  FlightEvent event;
  event.kind = FlightKind::kClose;
  event.peer = -1;
  event.round = ~0ull;
  event.count = -5;
  recorder.record(event);
  recorder.record(event_of(1 << 20, 77));
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_GE(events[0].time, before);
  EXPECT_LE(events[0].time, events[1].time);
  EXPECT_EQ(events[0].kind, FlightKind::kClose);
  EXPECT_EQ(events[0].channel, FlightEvent::kNoChannel);
  EXPECT_EQ(events[0].peer, -1);
  EXPECT_EQ(events[0].round, ~0ull);
  EXPECT_EQ(events[0].count, -5);
  EXPECT_EQ(events[1].peer, 1 << 20);
  expect_whole(events[1]);
}

TEST(FlightRecorder, KeepsTheLastThousandInOrder) {
  const SteadyClock clock;
  FlightRecorder recorder(&clock);
  for (std::uint64_t i = 0; i < 5000; ++i) recorder.record(event_of(0, i));
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), FlightRecorder::kEvents);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].round, 4000 + i);
  EXPECT_EQ(recorder.recorded(), 5000u);
}

// Several writers and a reader at once: what is read is never half of one
// event and half of another, and each writer's events come in its order.
TEST(FlightRecorder, IsReadWhileThreadsWrite) {
  constexpr int kWriters = 3;
  constexpr int kLooks = 200;
  const SteadyClock clock;
  FlightRecorder recorder(&clock);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> written{0};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      std::uint64_t i = 0;
      while (!stop) recorder.record(event_of(writer, i++));
      written += i;
    });
  }
  std::size_t read = 0;
  for (int looks = 0; looks < kLooks;) {
    std::vector<std::uint64_t> next(kWriters, 0);
    for (const FlightEvent& event : recorder.events()) {
      expect_whole(event);
      ASSERT_GE(event.peer, 0);
      ASSERT_LT(event.peer, kWriters);
      EXPECT_GE(event.round, next[event.peer]);
      next[event.peer] = event.round + 1;
      ++read;
    }
    if (read > 0) ++looks;
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(recorder.recorded(), written);
  // Nothing is lost but what a writer found taken, a thousand events later.
  EXPECT_GT(recorder.events().size(), FlightRecorder::kEvents / 2);
}

// A number for people; it decides nothing.
TEST(FlightRecorder, Cost) {
  constexpr int kEvents = 1000000;
  const SteadyClock clock;
  FlightRecorder recorder(&clock);
  const FlightEvent event = event_of(1, 2);
  const double start = clock.now();
  for (int i = 0; i < kEvents; ++i) recorder.record(event);
  const double recording = clock.now() - start;
  volatile double sink = 0;
  for (int i = 0; i < kEvents; ++i) sink = clock.now();
  const double reading = clock.now() - start - recording;
  (void)sink;
  std::cout << "an event costs " << recording / kEvents * 1e9 << " ns, of which the clock takes "
            << reading / kEvents * 1e9 << " ns\n";
}

}  // namespace
}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/diagnosis.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "engine/flight_record.h"

namespace hvd_partial {
namespace {

// Looks for each warning time: often enough for the times in the lines to be
// right, seldom enough to cost nothing.
constexpr double kLooks = 8;
constexpr double kLongestInterval = 1.0;
constexpr double kShortestInterval = 0.01;
// Ranks report what holds them after this part of the warning time, so that
// the coordinator knows everybody's part when the time is up.
constexpr double kReportAfter = 0.5;
// A rank speaks for itself when rank 0 has not within so many warning times.
constexpr double kSilence = 2.0;

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

}  // namespace

Diagnosis::Diagnosis(int rank, int size, const Clock* clock)
    : rank_(rank), size_(size), clock_(clock), recorder_(clock) {}

void Diagnosis::configure(DiagnosisOptions options) {
  options_ = std::move(options);
  if (options_.stall_warning_seconds > 0) {
    watch_.emplace(options_.stall_warning_seconds);
    next_look_ = clock_->now();
  }
}

void Diagnosis::say(Notices::Level level, const std::string& what) {
  if (options_.notices != nullptr) {
    options_.notices->push(level, "rank " + std::to_string(rank_) + ": " + what);
  }
}

std::string Diagnosis::write_record(const std::string& reason, const std::string& progress,
                                    const std::vector<std::shared_ptr<Channel>>& channels,
                                    const std::vector<Stall>& stalls) {
  if (!writes_records()) return {};
  const std::lock_guard<std::mutex> lock(record_mutex_);
  FlightRecord record;
  record.rank = rank_;
  record.size = size_;
  record.number = ++records_;
  record.reason = reason;
  record.versions = options_.versions;
  record.progress = progress;
  record.monotonic = clock_->now();
  record.wall =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  record.recorded = recorder_.recorded();
  record.events = recorder_.events();
  record.stalls = stalls;
  for (const auto& channel : channels) record.channels.push_back(channel->condition());
  std::string path;
  const Status written = write_flight_record(record, options_.flight_directory, &path);
  if (!written.ok()) {
    say(Notices::Level::kError, written.message());
    return {};
  }
  say(Notices::Level::kWarning, "flight record written to " + path + " (" + reason + ")");
  return path;
}

void Diagnosis::look(double now, const std::vector<std::shared_ptr<Channel>>& channels,
                     const Coordinator* coordinator, std::vector<Message>* reports,
                     std::vector<Coordinator::Outgoing>* told) {
  if (!watch_.has_value()) return;
  next_look_ = now + std::clamp(options_.stall_warning_seconds / kLooks, kShortestInterval,
                                kLongestInterval);
  if (seen_.size() < channels.size()) seen_.resize(channels.size());
  for (std::size_t i = 0; i < channels.size(); ++i) {
    look_at_channel(now, channels[i].get(), &seen_[i], reports);
  }
  if (coordinator == nullptr) return;

  lines_.clear();
  watch_->look(coordinator->stalls(now), now, &lines_);
  for (const StallWatch::Line& line : lines_) {
    FlightEvent event;
    event.kind = line.over ? FlightKind::kStallOver : FlightKind::kStall;
    event.detail = static_cast<std::uint8_t>(line.stall.kind);
    event.channel = line.stall.channel;
    event.round = line.stall.round;
    event.count = static_cast<std::int32_t>(line.stall.waited_for.size());
    recorder_.record(event);
    say(Notices::Level::kWarning, line.text);
    if (line.over) continue;
    for (const int rank : line.stall.waiting) {
      if (rank != rank_) {
        told->push_back({rank, StallTold{line.stall.channel, line.stall.round, line.text}});
      }
    }
  }
}

void Diagnosis::look_at_channel(double now, Channel* channel, Seen* seen,
                                std::vector<Message>* reports) {
  const Channel::Wait wait = channel->present_wait();
  if (!wait.id.has_value()) return;
  if (wait.cause != seen->cause || wait.held_round != seen->round) {
    if (seen->reported) reports->push_back(Held{*wait.id, seen->round, HeldCause::kNone, 0});
    *seen = {wait.cause, wait.held_round, now, false, seen->own_line};
  }
  const double warning = options_.stall_warning_seconds;
  const double held = now - seen->since;
  if (seen->cause != HeldCause::kNone && !seen->reported && held >= kReportAfter * warning) {
    seen->reported = true;
    reports->push_back(Held{*wait.id, seen->round, seen->cause, held});
  }
  // Rank 0 knows all that there is to know, if it lives.
  if (rank_ == 0 || wait.since < 0 || now - wait.since < kSilence * warning) return;
  if (wait.told_at >= wait.since || seen->own_line == wait.since) return;
  seen->own_line = wait.since;
  std::string text = "channel '" + channel->options().name + "', round " +
                     std::to_string(wait.round) + " (" + to_string(wait.mode) +
                     "): this rank has waited " + seconds_text(now - wait.since);
  text += wait.cause == HeldCause::kReducing ? " for the end of the round, which has started"
                                             : " for the round to start";
  say(Notices::Level::kWarning, text +
                                    "; rank 0, which knows why, has said nothing: it is stopped, "
                                    "or its host is overloaded or cannot be reached");
}

void Diagnosis::on_told(const StallTold& message, Channel* channel) {
  FlightEvent event;
  event.kind = FlightKind::kStall;
  event.channel = message.channel;
  event.round = message.round;
  recorder_.record(event);
  if (channel != nullptr) channel->set_told(message.text);
}

}  // namespace hvd_partial

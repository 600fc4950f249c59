// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace hvd_partial {
namespace {

// How long rank 0 lingers after everybody has said goodbye, so that its last
// message is read before its connections go.
constexpr double kLingerSeconds = 1.0;
// How long an abort may take to leave this process.
constexpr double kAbortSeconds = 1.0;

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)),
      address_(transport_->address()),
      progress_(transport_.get(), &clock_) {}

Engine::~Engine() { stop(); }

Status Engine::set_diagnosis(DiagnosisOptions options, int signal) {
  if (connected_.load()) {
    return Status(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank()) + ": connected already");
  }
  notices_ = options.notices;
  progress_.diagnosis()->configure(std::move(options));
  signal_.reset();
  if (signal <= 0) return {};
  Status status;
  signal_ = FlightSignal::watch(
      signal, [this](const std::string& reason) { progress_.write_flight_record(reason); },
      &status);
  return status;
}

std::string Engine::write_flight_record(const std::string& reason) {
  return progress_.write_flight_record(reason);
}

Status Engine::connect(const std::vector<std::vector<std::uint8_t>>& addresses) {
  if (connected_.load()) {
    return Status(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank()) + ": connected already");
  }
  if (Status status = transport_->connect(addresses); !status.ok()) return status;
  FlightEvent event;
  event.kind = FlightKind::kConnect;
  event.count = size();
  progress_.recorder()->record(event);
  thread_ = std::thread([this] { run(); });
  connected_.store(true);
  return {};
}

void Engine::run() {
  pthread_setname_np(pthread_self(), "hvd_partial");
  while (!stop_.load()) {
    bool moved = false;
    while (progress_.step() && !stop_.load()) moved = true;
    if (moved) {
      const std::lock_guard<std::mutex> lock(counters_mutex_);
      counters_ = transport_->counters();
    }
    if (stop_.load()) break;
    const double deadline = progress_.next_deadline();
    transport_->wait(deadline == kNever ? -1 : std::max(0.0, deadline - clock_.now()));
  }
  transport_->close();
}

void Engine::stop() {
  signal_.reset();
  if (thread_.joinable()) {
    stop_.store(true);
    transport_->wake();
    thread_.join();
  }
  if (notices_ != nullptr) notices_->close();
  connected_.store(false);
}

template <typename Predicate>
bool Engine::wait_until(Predicate done, double seconds) {
  const double deadline = clock_.now() + seconds;
  while (!done()) {
    if (clock_.now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void Engine::close(double silence_seconds) {
  if (!connected_.load()) return;
  FlightEvent event;
  event.kind = FlightKind::kClose;
  progress_.recorder()->record(event);
  const auto failed = [this] { return progress_.failure().failed(); };
  if (!failed()) {
    for (const auto& channel : progress_.channels()) {
      // It fails only where the whole engine has failed, and then there is nobody to leave.
      (void)channel->leave();
    }
    // A goodbye that came before the departures would be one from all channels,
    // with nothing more to give.
    wait_until(
        [&] {
          const auto channels = progress_.channels();
          return failed() || std::all_of(channels.begin(), channels.end(),
                                         [](const auto& channel) { return channel->has_spoken(); });
        },
        silence_seconds);
    progress_.post(Goodbye{});
    const double said = clock_.now();
    wait_until(
        [&] {
          const double sign = std::max(said, progress_.last_sign_of_life());
          return progress_.all_gone() || failed() || clock_.now() > sign + silence_seconds;
        },
        kNever);
    if (rank() == 0 && progress_.all_gone()) {
      wait_until([&] { return progress_.peers_gone(); }, kLingerSeconds);
    }
  }
  // An error that others have to hear of leaves first.
  wait_until([&] { return progress_.idle(); }, kAbortSeconds);
  stop();
}

void Engine::abort(const std::string& reason) {
  FlightEvent event;
  event.kind = FlightKind::kAbort;
  progress_.recorder()->record(event);
  progress_.fail_everywhere(Status(ErrorCode::kAborted, reason), /*here=*/false);
  wait_until([&] { return progress_.idle(); }, kAbortSeconds);
}

Status Engine::open_channel(ChannelOptions options, std::shared_ptr<Channel>* channel) {
  if (!connected_.load()) {
    return Status(ErrorCode::kNotConnected, "rank " + std::to_string(rank()) + ": not connected");
  }
  return progress_.open_channel(std::move(options), channel);
}

std::shared_ptr<Channel> Engine::find_channel(const std::string& name) {
  return progress_.find_channel(name);
}

Status Engine::set_mode(const Mode& mode) {
  if (progress_.failure().failed()) return progress_.failure().status();
  if (!valid(mode, size())) {
    return Status(ErrorCode::kInvalidArgument, "rank " + std::to_string(rank()) + ": mode " +
                                                   to_string(mode) + " does not fit " +
                                                   std::to_string(size()) + " ranks");
  }
  progress_.post(SetMode{kAllChannels, mode});
  return {};
}

TransportCounters Engine::counters() const {
  const std::lock_guard<std::mutex> lock(counters_mutex_);
  return counters_;
}

}  // namespace hvd_partial

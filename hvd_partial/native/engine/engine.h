// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_ENGINE_H_
#define HVD_PARTIAL_ENGINE_ENGINE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/flight_signal.h"
#include "engine/progress.h"
#include "transport/transport.h"

namespace hvd_partial {

// One rank of a job: a transport, the Progress over it, and the one thread
// that runs it. The thread parks when there is nothing to do.
class Engine {
 public:
  explicit Engine(std::unique_ptr<Transport> transport);
  // Stops at once, as a crash would; close() first to part in peace.
  ~Engine();

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const std::vector<std::uint8_t>& address() const { return address_; }

  // Before connect(). With a signal number above 0 that signal writes a flight
  // record from now on, until the process ends or another engine connects.
  Status set_diagnosis(DiagnosisOptions options, int signal);
  // Before connect().
  void set_leave_out_seconds(double seconds) { progress_.set_leave_out_seconds(seconds); }
  Status connect(const std::vector<std::vector<std::uint8_t>>& addresses);
  // Leaves all channels and waits until every rank has; while others still
  // make rounds it goes on waiting, but no longer than `silence_seconds`
  // without a sign of life. Returns at once if something failed before.
  void close(double silence_seconds);
  // Ends the job on all ranks.
  void abort(const std::string& reason);

  Status open_channel(ChannelOptions options, std::shared_ptr<Channel>* channel);
  std::shared_ptr<Channel> find_channel(const std::string& name);
  // For all channels, also those opened later.
  Status set_mode(const Mode& mode);
  std::vector<std::shared_ptr<Channel>> channels() { return progress_.channels(); }
  TransportCounters counters() const;
  // The path; empty if none was written.
  std::string write_flight_record(const std::string& reason);

 private:
  void run();
  void stop();
  // Waits until `done` holds, looking every few milliseconds: for the rare
  // ends of a job, not for steps.
  template <typename Predicate>
  bool wait_until(Predicate done, double seconds);

  SteadyClock clock_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::uint8_t> address_;
  Progress progress_;
  std::thread thread_;
  std::unique_ptr<FlightSignal> signal_;
  std::shared_ptr<Notices> notices_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> connected_{false};
  mutable std::mutex counters_mutex_;
  TransportCounters counters_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_ENGINE_H_

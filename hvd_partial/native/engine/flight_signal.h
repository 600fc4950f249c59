// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_FLIGHT_SIGNAL_H_
#define HVD_PARTIAL_ENGINE_FLIGHT_SIGNAL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"

namespace hvd_partial {

// Runs an action when the process gets a signal, on a thread of its own: so it
// works whatever the other threads are doing, and the handler does no more
// than a handler may. Only one watch in a process hears the signal, the last.
// A handler that was there before runs too. The handler stays when the watch
// ends, because without one most such signals kill the process.
class FlightSignal {
 public:
  // `act` gets the signal's name. Null and a status if the handler cannot be installed.
  static std::unique_ptr<FlightSignal> watch(int signal,
                                             std::function<void(const std::string&)> act,
                                             Status* status);
  ~FlightSignal();
  FlightSignal(const FlightSignal&) = delete;
  FlightSignal& operator=(const FlightSignal&) = delete;

 private:
  FlightSignal(int signal, int wake_fd, std::function<void(const std::string&)> act);
  void run();

  const int signal_;
  const int wake_fd_;
  const std::function<void(const std::string&)> act_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_FLIGHT_SIGNAL_H_

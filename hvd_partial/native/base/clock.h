// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_BASE_CLOCK_H_
#define HVD_PARTIAL_BASE_CLOCK_H_

#include <chrono>
#include <limits>

namespace hvd_partial {

// Seconds since an arbitrary moment. An interface so that a simulation can
// run the engine on time of its own.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_BASE_CLOCK_H_

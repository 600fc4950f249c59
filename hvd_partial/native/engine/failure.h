// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_FAILURE_H_
#define HVD_PARTIAL_ENGINE_FAILURE_H_

#include <atomic>
#include <mutex>
#include <utility>

#include "base/status.h"

namespace hvd_partial {

// The first thing that went wrong. It stays: every later call on the engine
// reports it, so that the cause is not hidden by what follows from it.
class FailureLatch {
 public:
  // False if something had failed before.
  bool set(Status status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return false;
    status_ = std::move(status);
    failed_.store(true, std::memory_order_release);
    return true;
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Only after failed(): then it does not change any more.
  const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_FAILURE_H_

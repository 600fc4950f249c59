// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_NOTICES_H_
#define HVD_PARTIAL_ENGINE_NOTICES_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

namespace hvd_partial {

// Lines for people, from the engine's threads to whoever prints them. A queue
// and not a callback: nothing of the engine ever waits for that side.
class Notices {
 public:
  // Values are part of the C ABI; those of Python's logging.
  enum class Level : int { kInfo = 20, kWarning = 30, kError = 40 };
  struct Notice {
    Level level = Level::kInfo;
    std::string text;
  };
  enum class Taken { kNotice, kTimeout, kClosed };

  void push(Level level, std::string text) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return;
      if (queue_.size() == kMost) queue_.pop_front();
      queue_.push_back({level, std::move(text)});
    }
    changed_.notify_one();
  }

  // Waits for the next one. What was there at close() is still given out.
  Taken take(double seconds, Notice* notice) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [this] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return closed_ ? Taken::kClosed : Taken::kTimeout;
    *notice = std::move(queue_.front());
    queue_.pop_front();
    return Taken::kNotice;
  }

  void close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  static constexpr std::size_t kMost = 256;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Notice> queue_;
  bool closed_ = false;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_NOTICES_H_

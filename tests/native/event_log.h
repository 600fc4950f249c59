// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_EVENT_LOG_H_
#define HVD_PARTIAL_TESTS_EVENT_LOG_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "protocol/mode.h"

namespace hvd_partial {

// The last things that happened, kept as they are and written out only where
// somebody wants to read them.
class EventLog {
 public:
  struct Event {
    double time = 0;
    int rank = 0;
    const char* what = "";  // lives for ever
    std::optional<std::int64_t> number;
    std::optional<double> seconds;
    std::optional<Mode> mode;
  };

  void add(const Event& event) { events_[count_++ % events_.size()] = event; }

  // A line for each of the last `most` events: time, rank, event.
  std::string last(std::size_t most) const {
    std::string text;
    const std::size_t kept = std::min({most, count_, events_.size()});
    for (std::size_t i = count_ - kept; i < count_; ++i) {
      const Event& event = events_[i % events_.size()];
      char line[96];
      std::snprintf(line, sizeof(line), "%12.6f s  rank %2d  ", event.time, event.rank);
      text += line;
      text += event.what;
      if (event.number) text += ' ' + std::to_string(*event.number);
      if (event.mode) text += ", " + to_string(*event.mode);
      if (event.seconds) text += ", " + std::to_string(*event.seconds) + " s";
      text += '\n';
    }
    return text;
  }

 private:
  std::array<Event, 256> events_;
  std::size_t count_ = 0;  // ever
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_EVENT_LOG_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_STALL_WATCH_H_
#define HVD_PARTIAL_PROTOCOL_STALL_WATCH_H_

#include <string>
#include <vector>

#include "protocol/stall.h"

namespace hvd_partial {

// Which stalls are worth a line, and once each: when one has lasted
// `warning_seconds`, and when it is over. Pure: time and stalls go in.
class StallWatch {
 public:
  struct Line {
    Stall stall;
    bool over = false;
    std::string text;
  };

  explicit StallWatch(double warning_seconds) : warning_seconds_(warning_seconds) {}

  // Appends what is to be said now.
  void look(const std::vector<Stall>& stalls, double now, std::vector<Line>* lines);
  // Some stall that a line was said about goes on.
  bool announced() const { return !announced_.empty(); }

 private:
  const double warning_seconds_;
  std::vector<Stall> announced_;  // as last seen
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_STALL_WATCH_H_

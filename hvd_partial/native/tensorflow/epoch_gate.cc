// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "tensorflow/epoch_gate.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace hvd_partial {
namespace {

struct LastEnd {
  std::int64_t end = 0;      // in batches
  std::int64_t flushes = 0;  // seen by then
};

struct LastEnds {
  std::mutex mutex;
  std::map<std::int64_t, LastEnd> of_gate;
};

LastEnds& last_ends() {
  static LastEnds ends;
  return ends;
}

}  // namespace

EpochGate::Epoch EpochGate::begin(std::int64_t gate, const Plan& plan, const ChannelTotals& now) {
  Epoch epoch;
  epoch.progress = now.progress();
  epoch.settled = now.own_settled();
  std::int64_t start = plan.passes * now.progress();
  LastEnds& ends = last_ends();
  const std::lock_guard<std::mutex> lock(ends.mutex);
  const auto last = ends.of_gate.find(gate);
  if (last != ends.of_gate.end()) {
    if (last->second.flushes == now.flushes) start = last->second.end;
    ends.of_gate.erase(last);
  }
  epoch.end = start + plan.steps * plan.size;
  return epoch;
}

bool EpochGate::open(std::int64_t gate, const Plan& plan, const Epoch& epoch,
                     std::int64_t handed_out, const ChannelTotals& now) {
  // Keras does not take an epoch without a single batch.
  if (handed_out == 0) return true;
  const std::int64_t done = plan.passes * now.progress();
  const std::int64_t own_done = plan.passes * (now.own_settled() - epoch.settled);
  const std::int64_t pending = std::max<std::int64_t>(0, handed_out - own_done);
  const double since_begin = static_cast<double>(plan.passes * (now.progress() - epoch.progress));
  const double each = own_done > 0 ? std::max(1.0, since_begin / static_cast<double>(own_done))
                                   : static_cast<double>(plan.size);
  const double expected = static_cast<double>(done) + each * static_cast<double>(pending);
  // Half a contribution absorbs the rounding of the quotient above.
  if (expected < static_cast<double>(epoch.end) - 0.5) return true;
  LastEnds& ends = last_ends();
  const std::lock_guard<std::mutex> lock(ends.mutex);
  ends.of_gate[gate] = LastEnd{epoch.end, now.flushes};
  return false;
}

void EpochGate::forget_all() {
  LastEnds& ends = last_ends();
  const std::lock_guard<std::mutex> lock(ends.mutex);
  ends.of_gate.clear();
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "tensorflow/channel_book.h"

#include "capi/hvd_partial.h"
#include "tensorflow/epoch_gate.h"

namespace hvd_partial {

ChannelBook& ChannelBook::instance() {
  static ChannelBook book;
  return book;
}

ChannelTotals ChannelBook::read(const std::string& channel) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = totals_.find(channel.empty() ? first_ : channel);
  return found == totals_.end() ? ChannelTotals{} : found->second;
}

std::string ChannelBook::resolve(const std::string& channel) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return channel.empty() ? first_ : channel;
}

void ChannelBook::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  totals_.clear();
  first_.clear();
}

}  // namespace hvd_partial

// A new engine starts at round 0: what was counted for the last one goes.
extern "C" HVDP_EXPORT void hvdp_tensorflow_reset(void) {
  hvd_partial::ChannelBook::instance().clear();
  hvd_partial::EpochGate::instance().clear();
}

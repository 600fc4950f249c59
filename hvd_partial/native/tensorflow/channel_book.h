// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TENSORFLOW_CHANNEL_BOOK_H_
#define HVD_PARTIAL_TENSORFLOW_CHANNEL_BOOK_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace hvd_partial {

// What this rank has put into a channel and taken out of it through the ops.
// Only results that were taken out count, so all numbers belong to one moment.
struct ChannelTotals {
  std::int64_t deposits = 0;       // of this rank
  std::int64_t own_skipped = 0;    // of them, left out as not finite
  std::int64_t own_dropped = 0;    // of them, while this rank was excluded, by results taken out
  std::int64_t own_included = 0;   // of them, in results taken out
  std::int64_t contributions = 0;  // of all ranks, in results taken out
  std::int64_t skipped = 0;        // left out as not finite, all ranks
  std::int64_t results = 0;        // taken out
  std::int64_t flushes = 0;        // ended

  // Batches that are done, by whomever.
  std::int64_t progress() const { return contributions + skipped; }
  // Batches of this rank of which nothing remains to be seen.
  std::int64_t own_settled() const { return own_included + own_skipped + own_dropped; }
};

// The totals of all channels, by name. Thread-safe. They start anew with the
// engine: the caller passes the number of the connection, and totals of an
// earlier one are forgotten.
class ChannelBook {
 public:
  static ChannelBook& instance();

  template <typename Change>
  void update(const std::string& channel, Change change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_.empty()) first_ = channel;
    change(&totals_[channel]);
  }
  // An empty name: the channel that was used first.
  ChannelTotals read(const std::string& channel) const;
  std::string resolve(const std::string& channel) const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ChannelTotals> totals_;
  std::string first_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TENSORFLOW_CHANNEL_BOOK_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_UCX_LOG_H_
#define HVD_PARTIAL_TRANSPORT_UCX_LOG_H_

#include <cstddef>

namespace hvd_partial {

// Keeps UCX from printing on this thread as long as it exists.
class UcxQuiet {
 public:
  explicit UcxQuiet(bool wanted = true);
  ~UcxQuiet();
  UcxQuiet(const UcxQuiet&) = delete;
  UcxQuiet& operator=(const UcxQuiet&) = delete;

 private:
  const bool wanted_;
  const bool before_;
};

// From now on each place in UCX's code prints some warnings and errors a
// minute, not more: UCX has one or several for every piece of rubbish that
// somebody sends to its port.
void limit_ucx_log();

// How often places may print: `kMost` times in a window of `kSeconds`.
class PrintLimit {
 public:
  static constexpr int kMost = 4;
  static constexpr double kSeconds = 60;

  // Whether the place may print at this time. One thread at a time.
  bool admits(const char* file, unsigned line, double now);

 private:
  struct Place {
    const char* file = nullptr;
    unsigned line = 0;
    double since = 0;
    int printed = 0;
  };
  static constexpr std::size_t kPlaces = 64;  // those beyond share the last

  Place places_[kPlaces];
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_UCX_LOG_H_

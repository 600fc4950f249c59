// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_STRANGERS_H_
#define HVD_PARTIAL_TRANSPORT_STRANGERS_H_

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

namespace hvd_partial {

// Counts messages that are not of this job, and says so on stderr: once for
// each reason, and not more than once a minute, so that whoever floods the port
// does not flood the log.
class Strangers {
 public:
  explicit Strangers(int rank) : rank_(rank) {}

  void turn_away(const std::string& why, double now) {
    ++count_;
    if (now < quiet_until_ || reasons_.size() >= kMostReasons) return;
    if (!reasons_.insert(why).second) return;
    quiet_until_ = now + kQuietSeconds;
    std::fprintf(stderr,
                 "hvd_partial: rank %d: turned away a control message (%llu so far): %s. The job "
                 "goes on.\n",
                 rank_, static_cast<unsigned long long>(count_), why.c_str());
  }
  std::uint64_t count() const { return count_; }

 private:
  static constexpr double kQuietSeconds = 60;
  static constexpr std::size_t kMostReasons = 64;

  const int rank_;
  std::uint64_t count_ = 0;
  double quiet_until_ = 0;
  std::set<std::string> reasons_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_STRANGERS_H_

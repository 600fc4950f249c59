// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_PARKER_H_
#define HVD_PARTIAL_TRANSPORT_PARKER_H_

#include "base/status.h"

namespace hvd_partial {

// Puts one thread to sleep until a file descriptor is readable, another thread
// calls wake(), or time is up.
class Parker {
 public:
  Parker() = default;
  ~Parker();
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  // `precise_epoll` false: do without epoll_pwait2() (for tests).
  Status open(bool precise_epoll = true);
  // `fd` must stay open as long as it is watched.
  Status watch(int fd);
  void unwatch(int fd);

  // Negative: no limit. May return early. True if wake() was called.
  bool park(double seconds);
  // Ends a present or the next park(). Any thread.
  void wake();

 private:
  int wait_for_events(double seconds);

  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  int timer_fd_ = -1;
  bool has_pwait2_ = true;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_PARKER_H_

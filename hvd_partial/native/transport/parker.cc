// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/parker.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>

namespace hvd_partial {
namespace {

constexpr int kMaxEvents = 8;

Status system_error(const char* what) {
  return Status(ErrorCode::kTransport, std::string(what) + " failed: " + std::strerror(errno));
}

timespec to_timespec(double seconds) {
  // A day is as good as for ever, and fits every time_t.
  const double bounded = std::min(std::max(seconds, 0.0), 86400.0);
  timespec time{};
  time.tv_sec = static_cast<time_t>(bounded);
  time.tv_nsec = static_cast<long>((bounded - static_cast<double>(time.tv_sec)) * 1e9);
  return time;
}

}  // namespace

Parker::~Parker() {
  for (const int fd : {epoll_fd_, wake_fd_, timer_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

Status Parker::open(bool precise_epoll) {
  has_pwait2_ = precise_epoll;
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return system_error("epoll_create1");
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return system_error("eventfd");
  timer_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer_fd_ < 0) return system_error("timerfd_create");
  if (Status status = watch(wake_fd_); !status.ok()) return status;
  return watch(timer_fd_);
}

Status Parker::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) return system_error("epoll_ctl");
  return {};
}

void Parker::unwatch(int fd) { ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

bool Parker::park(double seconds) {
  const int count = wait_for_events(seconds);
  if (count == 0) return false;
  // An eventfd counts, so one read takes all wake() calls so far.
  std::uint64_t wakes = 0;
  ssize_t got = 0;
  do {
    got = ::read(wake_fd_, &wakes, sizeof(wakes));
  } while (got < 0 && errno == EINTR);
  return got > 0;
}

int Parker::wait_for_events(double seconds) {
  epoll_event events[kMaxEvents];
#ifdef SYS_epoll_pwait2
  if (has_pwait2_ && seconds >= 0) {
    const timespec time = to_timespec(seconds);
    const long count =
        ::syscall(SYS_epoll_pwait2, epoll_fd_, events, kMaxEvents, &time, nullptr, 8);
    // Kernels before 5.11 lack it, and some sandboxes forbid what they don't know.
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(count);
    has_pwait2_ = false;
  }
#endif
  // epoll_wait() counts in milliseconds, too coarse for us; a timer does not.
  itimerspec timer{};
  if (seconds > 0) {
    timer.it_value = to_timespec(seconds);
    if (timer.it_value.tv_sec == 0 && timer.it_value.tv_nsec == 0) timer.it_value.tv_nsec = 1;
    ::timerfd_settime(timer_fd_, 0, &timer, nullptr);
  }
  const int count = ::epoll_wait(epoll_fd_, events, kMaxEvents, seconds == 0 ? 0 : -1);
  if (seconds > 0) {
    timer = {};
    ::timerfd_settime(timer_fd_, 0, &timer, nullptr);  // also takes back an expiry
  }
  return count;
}

void Parker::wake() {
  const std::uint64_t one = 1;
  while (::write(wake_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

}  // namespace hvd_partial

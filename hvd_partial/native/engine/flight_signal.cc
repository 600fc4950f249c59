// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/flight_signal.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

namespace hvd_partial {
namespace {

// What the handler touches; lock-free, and never destroyed.
struct HandlerState {
  std::atomic<int> wake_fd{-1};
  std::atomic<pid_t> owner{0};  // a forked child has the handler, but not the thread
  std::atomic<bool> came{false};
  std::array<std::atomic<bool>, 128> installed{};
  std::array<struct sigaction, 128> previous{};
};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

HandlerState& state() {
  static HandlerState* const instance = new HandlerState;
  return *instance;
}
// The handler must not run the initialisation of the above.
HandlerState* handler_state = nullptr;

void on_signal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  HandlerState& here = *handler_state;
  if (::getpid() == here.owner.load()) {
    here.came.store(true);
    const std::uint64_t one = 1;
    const int fd = here.wake_fd.load();
    if (fd >= 0) {
      [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
    }
  }
  const struct sigaction& previous = here.previous[number];
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  }
  errno = saved;
}

Status install(int signal) {
  HandlerState& here = state();
  handler_state = &here;
  struct sigaction current{};
  if (::sigaction(signal, nullptr, &current) != 0) {
    return Status(ErrorCode::kInvalidArgument, "signal " + std::to_string(signal) +
                                                   " cannot be handled: " + std::strerror(errno));
  }
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_signal) return {};
  if (here.installed[signal].load()) {
    // Somebody has put a handler over ours; it may call ours, so a second
    // installation could make a ring of them. Theirs it is.
    return {};
  }
  here.previous[signal] = current;
  struct sigaction ours{};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  if (::sigaction(signal, &ours, nullptr) != 0) {
    return Status(ErrorCode::kInvalidArgument, "signal " + std::to_string(signal) +
                                                   " cannot be handled: " + std::strerror(errno));
  }
  here.installed[signal].store(true);
  return {};
}

}  // namespace

std::unique_ptr<FlightSignal> FlightSignal::watch(int signal,
                                                  std::function<void(const std::string&)> act,
                                                  Status* status) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  HandlerState& here = state();
  if (signal <= 0 || signal >= static_cast<int>(here.previous.size())) {
    *status = Status(ErrorCode::kInvalidArgument,
                     "signal " + std::to_string(signal) + ": there is no such signal");
    return nullptr;
  }
  // Open until the process ends: a handler may be about to write to it. A
  // forked child gets one of its own.
  if (here.wake_fd.load() < 0 || here.owner.load() != ::getpid()) {
    const int fd = ::eventfd(0, EFD_CLOEXEC);
    if (fd < 0) {
      *status = Status(ErrorCode::kTransport, std::string("eventfd: ") + std::strerror(errno));
      return nullptr;
    }
    here.wake_fd.store(fd);
    here.owner.store(::getpid());
  }
  here.came.store(false);  // what came while nobody watched is not for the next one
  *status = install(signal);
  if (!status->ok()) return nullptr;
  return std::unique_ptr<FlightSignal>(
      new FlightSignal(signal, here.wake_fd.load(), std::move(act)));
}

FlightSignal::FlightSignal(int signal, int wake_fd, std::function<void(const std::string&)> act)
    : signal_(signal), wake_fd_(wake_fd), act_(std::move(act)) {
  // Signals are for the threads that the user knows of.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FlightSignal::~FlightSignal() {
  stop_.store(true);
  // Again and again, should another watch have taken it.
  while (!ended_.load()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  thread_.join();
}

void FlightSignal::run() {
  pthread_setname_np(pthread_self(), "hvd_flight");
  std::string name = "signal " + std::to_string(signal_);
  if (signal_ == SIGUSR1) name = "SIGUSR1";
  if (signal_ == SIGUSR2) name = "SIGUSR2";
  while (!stop_.load()) {
    std::uint64_t wakes = 0;
    const ssize_t got = ::read(wake_fd_, &wakes, sizeof(wakes));
    if (got < 0 && errno != EINTR) break;
    if (state().came.exchange(false)) act_(name);
  }
  ended_.store(true);
}

}  // namespace hvd_partial

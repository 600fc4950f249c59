// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/ucx_transport.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "transport/job_secret.h"
#include "transport/lost_peers.h"
#include "transport/parker.h"
#include "transport/ucx_address.h"
#include "transport/ucx_bulk.h"
#include "transport/ucx_control.h"
#include "transport/ucx_worker.h"

namespace hvd_partial {
namespace {

constexpr int kMaxRanks = 1 << 16;  // a UCX tag has 16 bits for the sender

// A close() takes at most twice this, plus what UCX needs to clean up.
constexpr double kFlushSeconds = 0.25;

// There are states in which UCX cannot be waited for: a send that waits for
// room in a peer's queue in shared memory gives no event when there is room
// again, and keeps UCX from arming; a connection that the peer has not answered
// is always ready for writing. So many turns of progress() and wait() that come
// to nothing are taken at once, hoping that it is a matter of microseconds;
// then wait() looks away from UCX and sleeps a little.
constexpr int kPatientTurns = 20;
constexpr double kPause = 100e-6;
constexpr int kHopefulTurns = 1000;  // then the peer is rather stopped than busy
constexpr double kLongPause = 1e-3;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class UcxTransport final : public Transport {
 public:
  UcxTransport(int rank, int size, std::unique_ptr<UcxWorker> control,
               std::unique_ptr<UcxWorker> bulk)
      : rank_(rank),
        size_(size),
        lost_(size),
        control_(rank, size, std::move(control), &lost_),
        bulk_(rank, size, std::move(bulk), &lost_) {}
  ~UcxTransport() override { UcxTransport::close(); }

  Status open();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::uint8_t> address() const override { return address_; }
  Status connect(const std::vector<std::vector<std::uint8_t>>& addresses) override;
  void set_listener(TransportListener* listener) override {
    listener_ = listener;
    listened_ |= listener != nullptr;
  }

  void send_control(int to, const std::uint8_t* data, std::size_t size) override;
  void send(int to, std::uint64_t tag, const void* data, std::size_t size,
            Completion* completion) override {
    bulk_.send(to, tag, data, size, completion);
  }
  void recv(int from, std::uint64_t tag, void* data, std::size_t size,
            Completion* completion) override {
    bulk_.recv(from, tag, data, size, completion);
  }
  void cancel_all() override { bulk_.cancel_all(); }

  bool progress() override;
  void wait(double seconds) override;
  void wake() override { parker_.wake(); }
  void close() override;

  TransportCounters counters() const override {
    return {control_.messages_sent(), bulk_.bytes_sent(), bulk_.bytes_received()};
  }

 private:
  bool report();
  void pause(double seconds);
  // Before there is a listener, everything waits for it; after it has gone,
  // nobody wants to know.
  bool may_report() const {
    return listened_ && (control_.has_arrived() || lost_.has_unreported());
  }

  const int rank_;
  const int size_;
  std::vector<std::uint8_t> address_;
  Parker parker_;
  LostPeers lost_;
  UcxControl control_;
  UcxBulk bulk_;
  TransportListener* listener_ = nullptr;
  bool listened_ = false;
  bool connected_ = false;
  bool closed_ = false;
  bool moved_ = true;        // since the last wait()
  int fruitless_turns_ = 0;  // see kPatientTurns
};

Status UcxTransport::open() {
  UcxAddress address;
  address.rank = rank_;
  address.size = size_;
  address.control = control_.worker().address();
  address.bulk = bulk_.worker().address();
  if (rank_ == 0) {
    if (Status status = JobSecret::draw(&address.secret); !status.ok()) return status;
  }
  address_ = encode(address);

  if (Status status = parker_.open(); !status.ok()) return status;
  if (Status status = parker_.watch(control_.worker().event_fd()); !status.ok()) return status;
  if (Status status = parker_.watch(bulk_.worker().event_fd()); !status.ok()) return status;
  return control_.open();
}

Status UcxTransport::connect(const std::vector<std::vector<std::uint8_t>>& addresses) {
  const std::string me = "rank " + std::to_string(rank_) + ": ";
  if (connected_ || closed_) {
    return Status(ErrorCode::kInvalidArgument,
                  me + (closed_ ? "connect() after close()" : "connected already"));
  }
  if (addresses.size() != static_cast<std::size_t>(size_)) {
    return Status(ErrorCode::kInvalidArgument, me + "got addresses of " +
                                                   std::to_string(addresses.size()) +
                                                   " ranks, expected " + std::to_string(size_));
  }
  std::vector<std::vector<std::uint8_t>> control(addresses.size());
  std::vector<std::vector<std::uint8_t>> bulk(addresses.size());
  JobSecret secret;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    UcxAddress address;
    Status status = decode_address(rank_, size_, static_cast<int>(i), addresses[i], &address);
    if (!status.ok()) return status;
    if (i == 0) secret = address.secret;
    control[i] = std::move(address.control);
    bulk[i] = std::move(address.bulk);
  }
  if (Status status = control_.connect(std::move(control), secret); !status.ok()) return status;
  bulk_.connect(std::move(bulk), secret);
  connected_ = true;
  return {};
}

void UcxTransport::send_control(int to, const std::uint8_t* data, std::size_t size) {
  if (closed_ || to < 0 || to >= size_ || size > kMaxControlBytes) return;
  if (!connected_ && to != rank_) return;
  control_.send(to, data, size);
}

bool UcxTransport::progress() {
  if (closed_) return false;
  bool moved = bulk_.progress();
  moved |= control_.progress();
  moved |= report();
  moved_ |= moved;
  return moved;
}

bool UcxTransport::report() {
  if (!may_report()) return false;
  // In this order: what a peer said before it died comes first.
  control_.deliver(listener_);
  for (const auto& [peer, reason] : lost_.take_unreported()) {
    if (listener_ != nullptr) listener_->on_peer_lost(peer, reason);
  }
  return true;
}

void UcxTransport::wait(double seconds) {
  if (closed_) {
    parker_.park(seconds);
    return;
  }
  if (may_report() || seconds == 0) return;
  if (std::exchange(moved_, false)) fruitless_turns_ = 0;
  if (fruitless_turns_ >= kPatientTurns) {
    pause(seconds);
    return;
  }
  const bool control_armed = control_.arm();
  if (!control_armed || !bulk_.arm()) {
    ++fruitless_turns_;
    return;
  }
  const double start = now();
  const bool woken = parker_.park(seconds);
  if (woken) return;
  fruitless_turns_ = now() - start < kLongPause ? fruitless_turns_ + 1 : 0;
}

void UcxTransport::pause(double seconds) {
  const double longest = fruitless_turns_ < kHopefulTurns ? kPause : kLongPause;
  ++fruitless_turns_;
  const int fds[] = {control_.worker().event_fd(), bulk_.worker().event_fd()};
  for (const int fd : fds) parker_.unwatch(fd);
  parker_.park(seconds < 0 ? longest : std::min(seconds, longest));
  for (const int fd : fds) {
    // Fails only if the kernel is out of memory; then keep looking.
    if (!parker_.watch(fd).ok()) wake();
  }
}

void UcxTransport::close() {
  if (std::exchange(closed_, true)) return;
  listener_ = nullptr;
  parker_.unwatch(control_.worker().event_fd());
  parker_.unwatch(bulk_.worker().event_fd());
  bulk_.close(kFlushSeconds);
  control_.close(kFlushSeconds);
}

Status make_workers(std::unique_ptr<UcxWorker>* control, std::unique_ptr<UcxWorker>* bulk) {
  UcxWorker::Options options;
  if (Status status = control_options(&options); !status.ok()) return status;
  if (Status status = UcxWorker::create(options, control); !status.ok()) return status;
  if (Status status = bulk_options(&options); !status.ok()) return status;
  return UcxWorker::create(options, bulk);
}

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(int rank, int size, Status* status) {
  if (size < 1 || size > kMaxRanks || rank < 0 || rank >= size) {
    *status = Status(ErrorCode::kInvalidArgument,
                     "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                         ": ranks count from 0 to size - 1, and there are at most " +
                         std::to_string(kMaxRanks));
    return nullptr;
  }
  std::unique_ptr<UcxWorker> control;
  std::unique_ptr<UcxWorker> bulk;
  *status = make_workers(&control, &bulk);
  if (status->ok()) {
    auto transport =
        std::make_unique<UcxTransport>(rank, size, std::move(control), std::move(bulk));
    *status = transport->open();
    if (status->ok()) return transport;
  }
  *status = Status(status->code(), "rank " + std::to_string(rank) + ": " + status->message());
  return nullptr;
}

std::string ucx_transport_names() {
  std::unique_ptr<UcxWorker> control;
  std::unique_ptr<UcxWorker> bulk;
  if (Status status = make_workers(&control, &bulk); !status.ok()) {
    return "error: " + status.message() + "\n";
  }
  std::string text;
  for (const std::string& name : control->transport_names()) text += "control " + name + "\n";
  for (const std::string& name : bulk->transport_names()) text += "bulk " + name + "\n";
  return text;
}

}  // namespace hvd_partial

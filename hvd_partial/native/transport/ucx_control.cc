// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/ucx_control.h"

#include <chrono>
#include <thread>
#include <utility>

#include "transport/ucx_log.h"

namespace hvd_partial {
namespace {

constexpr unsigned kMessageId = 1;
// As much as a job of a few hundred ranks has in the air at once.
constexpr int kFirstBuffers = 64;
constexpr std::size_t kFirstBufferBytes = 1024;
// How often close() lets UCX move to clean up behind it.
constexpr int kCleanupTurns = 1000;
// What may come before connect(); a rank that is so late to connect cannot be
// told more.
constexpr std::size_t kEarlyBytes = std::size_t{16} << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void UcxControl::Queue::push(Buffer* buffer) {
  buffer->next = nullptr;
  (first == nullptr ? first : last->next) = buffer;
  last = buffer;
}

UcxControl::Buffer* UcxControl::Queue::pop() {
  Buffer* buffer = first;
  if (buffer != nullptr) first = buffer->next;
  return buffer;
}

UcxControl::UcxControl(int rank, int size, std::unique_ptr<UcxWorker> worker, LostPeers* lost)
    : rank_(rank),
      worker_(std::move(worker)),
      lost_(lost),
      peers_(static_cast<std::size_t>(size)),
      strangers_(rank) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].owner = this;
    peers_[i].rank = static_cast<int>(i);
  }
  for (int i = 0; i < kFirstBuffers; ++i) {
    Buffer& buffer = buffers_.emplace_back();
    buffer.owner = this;
    buffer.data.reserve(kFirstBufferBytes);
    free_.push(&buffer);
  }
}

UcxControl::~UcxControl() { close(0); }

Status UcxControl::open() {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = kMessageId;
  param.cb = on_message;
  param.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_->get(), &param);
  if (status == UCS_OK) return {};
  return Status(ErrorCode::kTransport, "UCX: setting up messages failed: " + ucx_text(status));
}

Status UcxControl::connect(std::vector<std::vector<std::uint8_t>> addresses,
                           const JobSecret& secret) {
  for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].address = std::move(addresses[i]);
  secret_ = secret;
  for (const Early& early : std::exchange(early_, {})) {
    receive(early.header.data(), early.header.size(), early.data.data(), early.data.size());
  }
  for (Peer& other : peers_) {
    if (other.rank == rank_ || (rank_ != 0 && other.rank != 0)) continue;
    if (Status status = connect_peer(&other); !status.ok()) return status;
  }
  return {};
}

Status UcxControl::connect_peer(Peer* peer) {
  Status status =
      worker_->open_endpoint(peer->address.data(), on_endpoint_error, peer, &peer->endpoint);
  if (status.ok()) return {};
  return Status(ErrorCode::kTransport, "rank " + std::to_string(rank_) + " cannot reach rank " +
                                           std::to_string(peer->rank) +
                                           " over TCP: " + status.message() +
                                           "; is it still running? If so, choose interfaces that "
                                           "reach all hosts with HVD_PARTIAL_NETWORK_INTERFACES");
}

void UcxControl::send(int to, const std::uint8_t* data, std::size_t size) {
  Peer& target = peer(to);
  if (lost_->contains(to)) return;
  Buffer* buffer = take_buffer();
  buffer->peer = to;
  buffer->data.assign(data, data + size);
  ++messages_sent_;
  if (to == rank_) {
    buffer->peer = rank_;
    arrived_.push(buffer);
    return;
  }
  if (target.endpoint == nullptr) {
    if (Status status = connect_peer(&target); !status.ok()) {
      give_back(buffer);
      lose(&target, status.message());
      return;
    }
  }
  buffer->header.token = secret_->token;
  buffer->header.from = static_cast<std::uint32_t>(rank_);
  buffer->header.size = static_cast<std::uint32_t>(peers_.size());
  buffer->header.sequence = target.sent++;
  target.waiting.push(buffer);
  ++waiting_;
  send_waiting(&target);
}

bool UcxControl::send_waiting(Peer* peer) {
  bool moved = false;
  while (peer->under_way == nullptr && peer->waiting.first != nullptr) {
    Buffer* buffer = peer->waiting.pop();
    --waiting_;
    moved = true;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                         UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.cb.send = on_sent;
    param.user_data = buffer;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(peer->endpoint, kMessageId, &buffer->header, sizeof(buffer->header),
                        buffer->data.data(), buffer->data.size(), &param);
    if (UCS_PTR_IS_PTR(request)) {
      peer->under_way = buffer;
      ++under_way_;
      return moved;
    }
    give_back(buffer);
    if (UCS_PTR_IS_ERR(request)) {
      lose(peer, "sending a control message failed: " + ucx_text(UCS_PTR_STATUS(request)));
      return moved;
    }
  }
  return moved;
}

bool UcxControl::send_all_waiting() {
  bool moved = false;
  for (Peer& other : peers_) {
    if (waiting_ == 0) break;
    moved |= send_waiting(&other);
  }
  return moved;
}

bool UcxControl::progress() {
  bool moved = worker_->progress();
  if (waiting_ > 0) moved |= send_all_waiting();
  return moved;
}

void UcxControl::deliver(TransportListener* const& listener) {
  Queue batch = std::exchange(arrived_, {});
  while (Buffer* buffer = batch.pop()) {
    if (listener != nullptr) {
      listener->on_control(buffer->peer, buffer->data.data(), buffer->data.size());
    }
    give_back(buffer);
  }
}

void UcxControl::close(double seconds) {
  if (worker_ == nullptr) return;
  {
    const UcxQuiet quiet;  // peers may be gone already, even before they were reached
    flush(seconds);
    end_all_connections();
  }
  // Peers notice the end only when the sockets that they opened are closed.
  worker_.reset();
}

void UcxControl::flush(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  // First what waits in our own queues, then what UCX has taken but not yet
  // given to the kernel.
  while ((waiting_ > 0 || under_way_ > 0) && Clock::now() < deadline) {
    if (!progress()) std::this_thread::yield();
  }
  std::vector<void*> flushes;
  for (Peer& other : peers_) {
    if (other.endpoint == nullptr || lost_->contains(other.rank)) continue;
    const ucp_request_param_t param{};
    const ucs_status_ptr_t request = ucp_ep_flush_nbx(other.endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) flushes.push_back(request);
  }
  for (void* flush : flushes) {
    while (ucp_request_check_status(flush) == UCS_INPROGRESS && Clock::now() < deadline) {
      if (!worker_->progress()) std::this_thread::yield();
    }
    ucp_request_free(flush);
  }
}

void UcxControl::end_all_connections() {
  for (Peer& other : peers_) {
    drop_waiting(&other);
    if (other.endpoint == nullptr) continue;
    worker_->abandon_endpoint(other.endpoint);
    other.endpoint = nullptr;
  }
  // Cancelled requests end in a progress() or two.
  for (int i = 0; i < kCleanupTurns && (under_way_ > 0 || i < 2); ++i) worker_->progress();
  if (under_way_ > 0) worker_->expect_leftovers();
}

void UcxControl::drop_waiting(Peer* peer) {
  while (Buffer* buffer = peer->waiting.pop()) {
    --waiting_;
    give_back(buffer);
  }
}

void UcxControl::lose(Peer* peer, const std::string& why) {
  drop_waiting(peer);
  lost_->add(peer->rank, why);
}

ucs_status_t UcxControl::on_message(void* arg, const void* header, std::size_t header_size,
                                    void* data, std::size_t size,
                                    const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxControl*>(arg);
  // We never send rendezvous messages, whose data are not here yet.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    self->strangers_.turn_away("its data do not come with it", now());
  } else {
    self->receive(header, header_size, data, size);
  }
  return UCS_OK;
}

// A rank that connected first may speak to one that does not know the job's
// secret yet.
void UcxControl::hold(const void* header, std::size_t header_size, const void* data,
                      std::size_t size) {
  const std::size_t bytes = sizeof(Early) + header_size + size;
  if (early_bytes_ + bytes > kEarlyBytes) {
    strangers_.turn_away("too much came before this rank was connected", now());
    return;
  }
  early_bytes_ += bytes;
  const auto* header_bytes = static_cast<const std::uint8_t*>(header);
  const auto* data_bytes = static_cast<const std::uint8_t*>(data);
  early_.push_back({{header_bytes, header_bytes + header_size}, {data_bytes, data_bytes + size}});
}

void UcxControl::receive(const void* header, std::size_t header_size, const void* data,
                         std::size_t size) {
  if (!secret_) {
    hold(header, header_size, data, size);
    return;
  }
  ControlHeader parsed;
  const std::string objection =
      read_header(header, header_size, *secret_, rank_, static_cast<int>(peers_.size()), &parsed);
  if (!objection.empty()) {
    strangers_.turn_away(objection, now());
    return;
  }
  Peer& sender = peers_[parsed.from];
  if (size > Transport::kMaxControlBytes || parsed.sequence != sender.received) {
    lose(&sender, "rank " + std::to_string(sender.rank) + " sent a control message of " +
                      std::to_string(size) + " bytes with number " +
                      std::to_string(parsed.sequence) + ", expected number " +
                      std::to_string(sender.received) + " and at most " +
                      std::to_string(Transport::kMaxControlBytes) + " bytes");
    return;
  }
  ++sender.received;
  Buffer* buffer = take_buffer();
  buffer->peer = sender.rank;
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  buffer->data.assign(bytes, bytes + size);
  arrived_.push(buffer);
}

void UcxControl::on_sent(void* request, ucs_status_t status, void* user_data) {
  auto* buffer = static_cast<Buffer*>(user_data);
  UcxControl* self = buffer->owner;
  Peer& target = self->peer(buffer->peer);
  target.under_way = nullptr;
  --self->under_way_;
  self->give_back(buffer);
  ucp_request_free(request);
  if (status != UCS_OK && status != UCS_ERR_CANCELED) {
    self->lose(&target, "sending a control message failed: " + ucx_text(status));
  }
}

void UcxControl::on_endpoint_error(void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto* target = static_cast<Peer*>(arg);
  target->owner->lose(target, "the connection to rank " + std::to_string(target->rank) +
                                  " broke: " + ucx_text(status));
}

UcxControl::Buffer* UcxControl::take_buffer() {
  if (Buffer* buffer = free_.pop()) return buffer;
  Buffer& buffer = buffers_.emplace_back();
  buffer.owner = this;
  return &buffer;
}

void UcxControl::give_back(Buffer* buffer) { free_.push(buffer); }

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/ucx_bulk.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "transport/ucx_log.h"

namespace hvd_partial {
namespace {

// A UCX tag: the sender's rank above the caller's tag.
constexpr int kTagBits = 48;
constexpr std::uint64_t kMaxTag = (std::uint64_t{1} << kTagBits) - 1;
constexpr std::uint64_t kWholeTag = ~std::uint64_t{0};
constexpr int kFirstOperations = 64;
// How often cancel_all() lets UCX move to clean up behind it.
constexpr int kCleanupTurns = 1000;

void fail(Completion* completion, ErrorCode code, std::string message) {
  completion->status = Status(code, std::move(message));
  completion->done = true;
}

ErrorCode error_code(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_MESSAGE_TRUNCATED:
      return ErrorCode::kMismatch;
    case UCS_ERR_CANCELED:
      return ErrorCode::kAborted;
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_REJECTED:
    case UCS_ERR_NOT_CONNECTED:
      return ErrorCode::kPeerLost;
    default:
      return ErrorCode::kTransport;
  }
}

}  // namespace

UcxBulk::UcxBulk(int rank, int size, std::unique_ptr<UcxWorker> worker, LostPeers* lost)
    : rank_(rank), worker_(std::move(worker)), lost_(lost), peers_(static_cast<std::size_t>(size)) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].owner = this;
    peers_[i].rank = static_cast<int>(i);
  }
  for (int i = 0; i < kFirstOperations; ++i) {
    Operation& operation = operations_.emplace_back();
    operation.owner = this;
    operation.next = std::exchange(free_, &operation);
  }
}

UcxBulk::~UcxBulk() { close(0); }

void UcxBulk::connect(std::vector<std::vector<std::uint8_t>> addresses, const JobSecret& secret) {
  for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].address = std::move(addresses[i]);
  tag_mask_ = secret.tag_mask;
  connected_ = true;
}

// UCX hands a message to whoever waits for its tag, and lets anybody send. So
// tags are hidden: who does not know the job's secret would have to guess one
// of the few that are waited for among 2^64.
std::uint64_t UcxBulk::wire_tag(int sender, std::uint64_t tag) const {
  return (static_cast<std::uint64_t>(sender) << kTagBits | tag) ^ tag_mask_;
}

ucp_ep_h UcxBulk::endpoint(int rank, std::uint64_t tag, Completion* completion) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    fail(completion, code,
         "rank " + std::to_string(rank_) + ": transfer with rank " + std::to_string(rank) +
             " (tag " + std::to_string(tag) + "): " + why);
    return ucp_ep_h{};
  };
  if (!connected_) return refuse(ErrorCode::kNotConnected, "not connected");
  if (cancelled_) return refuse(ErrorCode::kAborted, "all transfers have been cancelled");
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) {
    return refuse(ErrorCode::kInvalidArgument, "there is no such rank");
  }
  if (tag > kMaxTag) return refuse(ErrorCode::kInvalidArgument, "the tag has more than 48 bits");
  if (lost_->contains(rank)) return refuse(ErrorCode::kPeerLost, "that rank is lost");
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.endpoint == nullptr) {
    const Status status =
        worker_->open_endpoint(peer.address.data(), on_endpoint_error, &peer, &peer.endpoint);
    if (!status.ok()) return refuse(status.code(), status.message());
  }
  return peer.endpoint;
}

void UcxBulk::send(int to, std::uint64_t tag, const void* data, std::size_t size,
                   Completion* completion) {
  const ucp_ep_h target = endpoint(to, tag, completion);
  if (target == nullptr) return;
  Operation* operation = begin(to, false, tag, size, completion);
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = on_sent;
  param.user_data = operation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request =
      ucp_tag_send_nbx(target, data, size, wire_tag(rank_, tag), &param);
  if (UCS_PTR_IS_PTR(request)) {
    operation->request = request;
  } else {
    end(operation, UCS_PTR_STATUS(request), size);
  }
}

void UcxBulk::recv(int from, std::uint64_t tag, void* data, std::size_t size,
                   Completion* completion) {
  // A receive needs no connection of its own, but cancel_all() needs to have
  // hold of the one that large messages come over.
  if (endpoint(from, tag, completion) == nullptr) return;
  Operation* operation = begin(from, true, tag, size, completion);
  ucp_tag_recv_info_t info{};
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_RECV_INFO;
  param.cb.recv = on_received;
  param.user_data = operation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.recv_info.tag_info = &info;
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(worker_->get(), data, size, wire_tag(from, tag), kWholeTag, &param);
  if (UCS_PTR_IS_PTR(request)) {
    operation->request = request;
  } else {
    end(operation, UCS_PTR_STATUS(request), info.length);
  }
}

UcxBulk::Operation* UcxBulk::begin(int peer, bool receives, std::uint64_t tag, std::size_t size,
                                   Completion* completion) {
  Operation* operation = free_;
  if (operation != nullptr) {
    free_ = operation->next;
  } else {
    operation = &operations_.emplace_back();
    operation->owner = this;
  }
  operation->completion = completion;
  operation->request = nullptr;
  operation->peer = peer;
  operation->receives = receives;
  operation->tag = tag;
  operation->size = size;
  operation->previous = nullptr;
  operation->next = under_way_;
  if (under_way_ != nullptr) under_way_->previous = operation;
  under_way_ = operation;
  return operation;
}

void UcxBulk::end(Operation* operation, ucs_status_t status, std::size_t bytes) {
  if (operation->next != nullptr) operation->next->previous = operation->previous;
  (operation->previous != nullptr ? operation->previous->next : under_way_) = operation->next;

  Completion* completion = std::exchange(operation->completion, nullptr);
  if (completion != nullptr) {
    const bool sizes_agree = bytes == operation->size;
    if (status == UCS_OK && sizes_agree) {
      (operation->receives ? bytes_received_ : bytes_sent_) += bytes;
      completion->done = true;
    } else {
      const std::string what =
          "rank " + std::to_string(rank_) + (operation->receives ? ": receive from" : ": send to") +
          " rank " + std::to_string(operation->peer) + " (tag " + std::to_string(operation->tag) +
          ", " + std::to_string(operation->size) + " bytes) failed: ";
      fail(
          completion, status == UCS_OK ? ErrorCode::kMismatch : error_code(status),
          what + (status == UCS_OK ? "got " + std::to_string(bytes) + " bytes" : ucx_text(status)));
    }
  }
  operation->next = std::exchange(free_, operation);
}

void UcxBulk::on_sent(void* request, ucs_status_t status, void* user_data) {
  auto* operation = static_cast<Operation*>(user_data);
  operation->owner->end(operation, status, operation->size);
  ucp_request_free(request);
}

void UcxBulk::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* user_data) {
  auto* operation = static_cast<Operation*>(user_data);
  operation->owner->end(operation, status, status == UCS_OK ? info->length : 0);
  ucp_request_free(request);
}

void UcxBulk::on_endpoint_error(void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto* peer = static_cast<Peer*>(arg);
  peer->owner->lost_->add(peer->rank, "a transfer with rank " + std::to_string(peer->rank) +
                                          " broke: " + ucx_text(status));
}

void UcxBulk::cancel_all() {
  if (cancelled_) return;
  // Peers that have not cancelled yet may have sent what nobody wants now.
  worker_->expect_leftovers();
  for (Operation* operation = under_way_; operation != nullptr; operation = operation->next) {
    operation->completion = nullptr;
  }
  for (Operation* operation = under_way_; operation != nullptr;) {
    Operation* next = operation->next;
    // Ends those that have not met their message; UCX cancels nothing else.
    if (operation->receives) ucp_request_cancel(worker_->get(), operation->request);
    operation = next;
  }
  end_all_connections();
  cancelled_ = true;
}

void UcxBulk::end_all_connections() {
  for (Peer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    worker_->abandon_endpoint(peer.endpoint);
    peer.endpoint = nullptr;
  }
  // Cancelled requests end in a progress() or two. What remains then are
  // receives of which a part has come.
  for (int i = 0; i < kCleanupTurns && (under_way_ != nullptr || i < 2); ++i) worker_->progress();
}

void UcxBulk::close(double seconds) {
  if (worker_ == nullptr) return;
  connected_ = false;
  {
    const UcxQuiet quiet;  // peers may be gone already, even before they were reached
    if (under_way_ != nullptr) cancel_all();
    if (!cancelled_) flush(seconds);
    if (!cancelled_) end_all_connections();
    cancelled_ = true;
  }
  worker_.reset();
}

void UcxBulk::flush(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (Peer& peer : peers_) {
    if (peer.endpoint == nullptr || lost_->contains(peer.rank)) continue;
    const ucp_request_param_t param{};
    const ucs_status_ptr_t request = ucp_ep_flush_nbx(peer.endpoint, &param);
    if (!UCS_PTR_IS_PTR(request)) continue;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && Clock::now() < deadline) {
      if (!worker_->progress()) std::this_thread::yield();
    }
    ucp_request_free(request);
  }
}

}  // namespace hvd_partial

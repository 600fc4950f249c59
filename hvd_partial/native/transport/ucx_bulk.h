// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_UCX_BULK_H_
#define HVD_PARTIAL_TRANSPORT_UCX_BULK_H_

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "transport/job_secret.h"
#include "transport/lost_peers.h"
#include "transport/transport.h"
#include "transport/ucx_worker.h"

namespace hvd_partial {

// Bulk transfers of one rank: tagged messages over whatever is fastest. UCX
// never sees a Completion, only an Operation of ours, so that a request UCX
// cannot let go of does no harm.
class UcxBulk {
 public:
  UcxBulk(int rank, int size, std::unique_ptr<UcxWorker> worker, LostPeers* lost);
  ~UcxBulk();
  UcxBulk(const UcxBulk&) = delete;
  UcxBulk& operator=(const UcxBulk&) = delete;

  const UcxWorker& worker() const { return *worker_; }

  // `addresses[i]`: of rank i's bulk worker. Connections are made when needed.
  void connect(std::vector<std::vector<std::uint8_t>> addresses, const JobSecret& secret);

  void send(int to, std::uint64_t tag, const void* data, std::size_t size, Completion* completion);
  void recv(int from, std::uint64_t tag, void* data, std::size_t size, Completion* completion);
  // Abandons everything for good: UCX touches memory only from within
  // progress(), which does nothing from then on.
  void cancel_all();

  bool progress() { return !cancelled_ && worker_->progress(); }
  // See UcxWorker. Without effect, and true, after cancel_all().
  bool arm() { return cancelled_ || worker_->arm(); }

  // Gets finished sends out of this process, unless that takes too long, and
  // ends everything: transfers fail, arm() and worker() must not be called.
  void close(double seconds);

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Peer {
    UcxBulk* owner = nullptr;
    int rank = 0;
    std::vector<std::uint8_t> address;
    ucp_ep_h endpoint = nullptr;
  };
  // A transfer under way. Reused.
  struct Operation {
    UcxBulk* owner = nullptr;
    Completion* completion = nullptr;  // null: abandoned
    void* request = nullptr;
    Operation* previous = nullptr;
    Operation* next = nullptr;
    int peer = 0;
    bool receives = false;
    std::uint64_t tag = 0;
    std::size_t size = 0;
  };

  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* user_data);
  static void on_endpoint_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);

  // The connection to `rank`, or null and `completion` done with the reason.
  ucp_ep_h endpoint(int rank, std::uint64_t tag, Completion* completion);
  Operation* begin(int peer, bool receives, std::uint64_t tag, std::size_t size,
                   Completion* completion);
  void end(Operation* operation, ucs_status_t status, std::size_t bytes);
  std::uint64_t wire_tag(int sender, std::uint64_t tag) const;
  void end_all_connections();
  void flush(double seconds);

  const int rank_;
  std::unique_ptr<UcxWorker> worker_;
  LostPeers* lost_;
  std::vector<Peer> peers_;
  std::deque<Operation> operations_;  // owns all of them, for good
  Operation* free_ = nullptr;         // linked by next
  Operation* under_way_ = nullptr;    // linked both ways
  std::uint64_t tag_mask_ = 0;
  bool connected_ = false;
  bool cancelled_ = false;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_UCX_BULK_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_UCX_CONTROL_H_
#define HVD_PARTIAL_TRANSPORT_UCX_CONTROL_H_

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/control_header.h"
#include "transport/job_secret.h"
#include "transport/lost_peers.h"
#include "transport/strangers.h"
#include "transport/transport.h"
#include "transport/ucx_worker.h"

namespace hvd_partial {

// Control messages of one rank: active messages over connections that report
// a peer's death. At most one message to a peer is under way at a time, so
// their order does not depend on how UCX sends small and large ones.
class UcxControl {
 public:
  UcxControl(int rank, int size, std::unique_ptr<UcxWorker> worker, LostPeers* lost);
  ~UcxControl();
  UcxControl(const UcxControl&) = delete;
  UcxControl& operator=(const UcxControl&) = delete;

  Status open();
  const UcxWorker& worker() const { return *worker_; }

  // `addresses[i]`: of rank i's control worker. Connects rank 0 with everybody.
  // Messages without the secret are dropped from here on; those that came
  // earlier wait for this.
  Status connect(std::vector<std::vector<std::uint8_t>> addresses, const JobSecret& secret);

  void send(int to, const std::uint8_t* data, std::size_t size);
  // Moves messages; those that arrive wait for deliver().
  bool progress();
  bool has_arrived() const { return arrived_.first != nullptr; }
  // Hands the messages that have arrived by now to `listener`, which may do
  // anything but destroy this object; it is read anew for each of them. Without
  // one they are dropped.
  void deliver(TransportListener* const& listener);
  bool arm() { return worker_->arm(); }

  // Gets what was sent out of this process, unless that takes too long, and
  // ends everything: nothing but messages_sent() may be called afterwards.
  void close(double seconds);

  std::uint64_t messages_sent() const { return messages_sent_; }

 private:
  // One message, on its way out or in. Reused.
  struct Buffer {
    UcxControl* owner = nullptr;
    Buffer* next = nullptr;
    int peer = 0;
    ControlHeader header;
    std::vector<std::uint8_t> data;
  };
  struct Queue {
    Buffer* first = nullptr;
    Buffer* last = nullptr;
    void push(Buffer* buffer);
    Buffer* pop();
  };
  struct Peer {
    UcxControl* owner = nullptr;
    int rank = 0;
    std::vector<std::uint8_t> address;
    ucp_ep_h endpoint = nullptr;
    Queue waiting;
    Buffer* under_way = nullptr;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  static ucs_status_t on_message(void* arg, const void* header, std::size_t header_size, void* data,
                                 std::size_t size, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_endpoint_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);

  void receive(const void* header, std::size_t header_size, const void* data, std::size_t size);
  void hold(const void* header, std::size_t header_size, const void* data, std::size_t size);
  Status connect_peer(Peer* peer);
  bool send_waiting(Peer* peer);
  bool send_all_waiting();
  void flush(double seconds);
  void end_all_connections();
  void drop_waiting(Peer* peer);
  void lose(Peer* peer, const std::string& why);
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  Buffer* take_buffer();
  void give_back(Buffer* buffer);

  const int rank_;
  std::unique_ptr<UcxWorker> worker_;
  LostPeers* lost_;
  std::vector<Peer> peers_;
  std::optional<JobSecret> secret_;  // from connect() on
  Strangers strangers_;
  struct Early {
    std::vector<std::uint8_t> header;
    std::vector<std::uint8_t> data;
  };
  std::vector<Early> early_;  // came before it was known who belongs to the job
  std::size_t early_bytes_ = 0;
  std::deque<Buffer> buffers_;  // owns all of them, for good
  Queue free_;
  Queue arrived_;
  // Messages that wait for one to the same peer.
  std::size_t waiting_ = 0;
  std::size_t under_way_ = 0;
  std::uint64_t messages_sent_ = 0;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_UCX_CONTROL_H_

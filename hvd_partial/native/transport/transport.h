// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_TRANSPORT_H_
#define HVD_PARTIAL_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hvd_partial {

// State of one bulk transfer, owned by whoever started it and polled by the
// progress thread. It must outlive the transfer (or Transport::cancel_all()).
struct Completion {
  bool done = false;
  Status status;
};

// What a transport reports from within progress(), on the calling thread.
class TransportListener {
 public:
  virtual ~TransportListener() = default;
  // `data` is valid only during the call.
  virtual void on_control(int from, const std::uint8_t* data, std::size_t size) = 0;
  // Reported once a peer, however it was noticed.
  virtual void on_peer_lost(int peer, const std::string& reason) = 0;
};

struct TransportCounters {
  std::uint64_t control_messages_sent = 0;
  std::uint64_t bulk_bytes_sent = 0;
  std::uint64_t bulk_bytes_received = 0;
};

// Moves bytes between the ranks of one job. Every call except wake() belongs
// to one thread (the progress thread, once it runs). Nothing here blocks
// except wait().
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // What the other ranks need to reach this one; opaque bytes.
  virtual std::vector<std::uint8_t> address() const = 0;
  // addresses[i] is what rank i returned from address().
  virtual Status connect(const std::vector<std::vector<std::uint8_t>>& addresses) = 0;
  virtual void set_listener(TransportListener* listener) = 0;

  // Small messages (at most kMaxControlBytes), copied, reliable, in order for
  // each pair. To oneself: delivered by a later progress(). Control channels
  // exist between rank 0 and every rank; others need not be supported.
  virtual void send_control(int to, const std::uint8_t* data, std::size_t size) = 0;

  // Bulk transfers, matched by (from, to, tag). Buffers stay valid and
  // untouched until the completion is done.
  virtual void send(int to, std::uint64_t tag, const void* data, std::size_t size,
                    Completion* completion) = 0;
  virtual void recv(int from, std::uint64_t tag, void* data, std::size_t size,
                    Completion* completion) = 0;
  // Abandons all bulk transfers: afterwards no buffer or Completion given
  // earlier is touched any more, whatever state the peers are in.
  virtual void cancel_all() = 0;

  // Moves everything that can move; true if anything happened.
  virtual bool progress() = 0;
  // Parks until something may have happened, wake() was called (also before
  // this call), or `seconds` have passed (negative: no limit).
  virtual void wait(double seconds) = 0;
  // Ends a present or the next wait(). Any thread.
  virtual void wake() = 0;

  // Closes without waiting for peers; bounded time even if peers are dead.
  virtual void close() = 0;

  virtual TransportCounters counters() const = 0;

  static constexpr std::size_t kMaxControlBytes = 1 << 20;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_TRANSPORT_H_

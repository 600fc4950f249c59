// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_IN_PROCESS_TRANSPORT_H_
#define HVD_PARTIAL_TRANSPORT_IN_PROCESS_TRANSPORT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace hvd_partial {

class InProcessState;

// Connects ranks that live in one process, for tests and simulations.
//
// Each rank's transport belongs to one thread; all of them to the same one in
// a simulation. A Completion is touched by its owner's calls only. Large
// messages are copied by the receiver, straight out of the sender's buffer,
// and the send is done when the sender hears of it: what touches a buffer too
// early shows up in ThreadSanitizer. As with UCX, cancel_all() is final, and a
// rank's close() looks to rank 0 (rank 0's: to everybody) like its death.
//
// Simulation: with a `delay` there is a virtual clock, which moves only by
// set_time(). A message is visible that many seconds after it was sent (or
// when everything that has to come before it is: control messages of a pair
// keep their order, transfers of a pair with the same tag too). wait() returns
// at once.
class InProcessFabric {
 public:
  explicit InProcessFabric(int size);
  ~InProcessFabric();
  InProcessFabric(const InProcessFabric&) = delete;
  InProcessFabric& operator=(const InProcessFabric&) = delete;

  // The two settings come before anything is sent.
  //
  // Seconds from `from` to `to`; news of a finished copy and of a rank's
  // close() travel as well (as bulk and as control). Called by the sender's
  // thread, as long as there are transports. Starts the virtual clock.
  void set_delay(std::function<double(int from, int to, bool control)> delay);
  // Bulk messages up to this size (default: none) are copied when they are
  // sent, and the send is done at once: what UCX does with small ones.
  void set_eager_bytes(std::size_t bytes);

  // Once for each rank. The transports may outlive the fabric. Null if `rank`
  // does not exist or has been made already.
  std::unique_ptr<Transport> make(int rank);

  // Virtual time in seconds; never goes back.
  void set_time(double seconds);
  double time() const;
  // When the next thing becomes visible to anybody: later than time(), or
  // infinity. What is visible by now needs progress(), not time.
  double next_delivery() const;

  // The rank dies now: it says and hears nothing from here on, and its calls
  // do nothing. What it has said by now still arrives, except for transfers
  // that nobody has copied yet. The witnesses (default: all others) are told
  // `notice_seconds` of virtual time later.
  void kill(int rank, double notice_seconds = 0);
  void kill(int rank, double notice_seconds, const std::vector<int>& witnesses);

 private:
  std::shared_ptr<InProcessState> state_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_IN_PROCESS_TRANSPORT_H_

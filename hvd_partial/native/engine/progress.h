// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_PROGRESS_H_
#define HVD_PARTIAL_ENGINE_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/channel.h"
#include "engine/diagnosis.h"
#include "engine/failure.h"
#include "protocol/coordinator.h"
#include "transport/transport.h"

namespace hvd_partial {

// Everything that a rank does between its user's calls: control messages in
// and out, rounds of all channels, the coordinator on rank 0. Has no thread
// of its own: Engine runs step() on one, a simulation calls it by turns.
class Progress final : public ChannelHost, private TransportListener {
 public:
  Progress(Transport* transport, const Clock* clock);
  ~Progress() override;

  // ---- any thread -----------------------------------------------------------

  void post(Message message) override;
  void wake() override { transport_->wake(); }
  FlightRecorder* recorder() override { return diagnosis_.recorder(); }
  // Opens the channel, or finds it: the same name must come with the same
  // signature. Fails everywhere if there is no memory for it here.
  Status open_channel(ChannelOptions options, std::shared_ptr<Channel>* channel);
  std::shared_ptr<Channel> find_channel(const std::string& name);
  std::vector<std::shared_ptr<Channel>> channels();
  const FailureLatch& failure() const { return failure_; }
  // Fails here and on all other ranks. `here`: on the progress thread.
  void fail_everywhere(Status status, bool here = true);
  // Writes a flight record; not on the progress thread, which is asked what
  // it knows. Returns the path; empty if none was written.
  std::string write_flight_record(const std::string& reason);
  Diagnosis* diagnosis() { return &diagnosis_; }
  // Before the progress thread runs; see Coordinator.
  void set_leave_out_seconds(double seconds);
  // Everything posted so far has been handed to the transport.
  bool idle() const { return outbox_empty_.load(); }
  bool all_gone() const { return all_gone_.load(); }
  // Rank 0 leaves last, so that nobody mistakes its end for a crash.
  bool peers_gone() const { return peers_lost_.load() >= size_ - 1; }
  double last_sign_of_life() const { return last_sign_of_life_.load(); }

  // ---- the progress thread --------------------------------------------------

  // Moves everything that can move. True if anything happened: call again
  // before waiting.
  bool step();
  // When step() must be called at the latest, for timers.
  double next_deadline() const;

 private:
  void on_control(int from, const std::uint8_t* data, std::size_t size) override;
  void on_peer_lost(int peer, const std::string& reason) override;

  // Why the message cannot be right; empty if it can.
  std::string objection(int from, const Message& message);
  void to_coordinator(int from, const Message& message);
  void from_coordinator(const Message& message);
  void dispatch(const std::vector<Coordinator::Outgoing>& outgoing);
  void send(int to, const Message& message);
  void freeze(const Freeze& message);
  void drain_outbox();
  // Fails here; the other ranks know already.
  void fail(Status status);
  // Writes the flight record, then sets the failure, which names it. False if
  // something had failed before.
  bool latch(Status status, bool here);
  std::string write_record(const std::string& reason, bool here);
  void look(double now);
  void note(FlightKind kind, int peer, const Message& message);
  Channel* channel(ChannelId id);

  Transport* transport_;
  const Clock* clock_;
  const int rank_;
  const int size_;
  Diagnosis diagnosis_;
  double leave_out_seconds_ = 0;
  FailureLatch failure_;
  std::atomic<bool> failing_{false};
  // Of a thread that writes a flight record: the progress thread answers.
  std::atomic<bool> asked_{false};
  std::mutex answer_mutex_;
  std::vector<Stall> answer_;
  std::atomic<bool> failure_handled_{false};

  std::mutex mutex_;  // guards the two below
  std::vector<std::shared_ptr<Channel>> channels_;
  std::vector<Message> outbox_;

  // The progress thread's own.
  std::vector<Message> outgoing_;
  std::vector<std::shared_ptr<Channel>> running_;  // channels_, copied when it grew
  std::vector<Channel*> by_id_;
  std::optional<Coordinator> coordinator_;  // rank 0
  std::vector<Coordinator::Outgoing> decisions_;
  std::vector<Message> reports_;
  std::vector<std::uint8_t> wire_;
  bool frozen_ = false;  // no round ends here; see protocol/silence.cc
  std::atomic<int> peers_lost_{0};

  std::atomic<bool> outbox_empty_{true};
  std::atomic<bool> all_gone_{false};
  std::atomic<double> last_sign_of_life_{0};
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_PROGRESS_H_

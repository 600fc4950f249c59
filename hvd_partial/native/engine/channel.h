// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_CHANNEL_H_
#define HVD_PARTIAL_ENGINE_CHANNEL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/allreduce.h"
#include "collective/tensor_layout.h"
#include "engine/buffer_pool.h"
#include "engine/deferred_reductions.h"
#include "engine/failure.h"
#include "engine/flight_recorder.h"
#include "engine/kept_results.h"
#include "engine/round_header.h"
#include "protocol/member.h"
#include "transport/transport.h"

namespace hvd_partial {

// What the sum is divided by when it is read.
enum class Average : std::int32_t { kNone = 0, kSize = 1, kContributions = 2 };

struct ChannelOptions {
  std::string name;
  std::string signature;  // a line for every property in which the ranks must agree
  std::vector<TensorSpec> tensors;
  Member::Options member;
  Average average = Average::kSize;
  double grace_seconds = -1;  // negative: learned
  bool skip_nonfinite = false;
  double leave_out_seconds =
      0;  // the coordinator hears of a round that does not end after half of it
};

struct ChannelStats {
  std::uint64_t rounds = 0;
  std::uint64_t full_rounds = 0;  // with a contribution of every rank
  std::uint64_t flushes = 0;      // rounds that ended a flush
  std::uint64_t contributions = 0;
  std::uint64_t deposits = 0;
  std::uint64_t late_deposits = 0;
  std::uint64_t skipped = 0;
  std::uint64_t dropped = 0;  // of this rank, while it was excluded
  std::uint64_t missed = 0;
  std::uint64_t made_without = 0;  // rounds, while this process did not answer
  std::uint64_t deferred = 0;      // rounds whose sum came later, because a process did not
  int lag = 0;
  int largest_lag = 0;
  double blocked_seconds = 0;
  double deposit_seconds = 0;
  double contribution_weight = 0;
  double grace_seconds = -1;  // in force; known on rank 0 only
  Mode mode;
  std::vector<double> compute_seconds_of;
  std::vector<int> excluded;  // from the last round joined here
};

// What a channel needs of the engine it belongs to; thread-safe.
class ChannelHost {
 public:
  virtual ~ChannelHost() = default;
  // To the coordinator, in order.
  virtual void post(Message message) = 0;
  // The progress thread looks at its channels again.
  virtual void wake() = 0;
  virtual FlightRecorder* recorder() = 0;
};

// One channel on one rank: buffers, ring, and the Member that decides. The
// user's thread and the progress thread meet here, under one mutex that is
// held for bookkeeping only, never while data are copied or reduced.
class Channel {
 public:
  // Throws std::bad_alloc.
  Channel(ChannelOptions options, Transport* transport, const Clock* clock,
          const FailureLatch* failure, ChannelHost* host);

  // What its buffers take, all of it from the beginning.
  struct Memory {
    int buffers;
    double buffer_bytes;  // exact as far as any machine has memory
    double bytes() const { return buffers * buffer_bytes; }
  };
  static Memory memory(const ChannelOptions& options, int size);

  const ChannelOptions& options() const { return options_; }

  // ---- the user's thread ----------------------------------------------------

  // Adds a contribution. `skipped` says whether it was left out as not finite.
  Status deposit(const void* const* tensors, double compute_seconds, bool* skipped);
  // Whether wait() would return, and with what.
  bool poll(int* available, bool* flushed);
  Status wait(double seconds, int* available, bool* flushed);
  // Runs `ready` once, as soon as wait() would return.
  Status notify(std::function<void()> ready);
  // Results in the ring, oldest first. The header is valid until released.
  Status header(int index, const RoundHeader** header);
  Status read(int index, void* const* tensors);
  Status release(int count);
  Status begin_flush();
  Status leave();
  Status set_mode(const Mode& mode);
  // No round waits for these ranks any more; empty: for all again.
  Status exclude(const std::vector<int>& ranks, bool drop);
  // What every rank decides alike; see Decide.
  Status decide(std::uint64_t number, const Mode& mode, const std::vector<int>& excluded,
                bool drop);
  ChannelStats stats();
  std::optional<ChannelId> id();
  // Nothing that this rank has said waits for the channel's number.
  bool has_spoken();

  // ---- for warnings and flight records: any thread ---------------------------

  // What this rank waits for at this moment.
  struct Wait {
    std::optional<ChannelId> id;
    std::uint64_t round = 0;  // the next result
    Mode mode;
    double since = -1;                   // the user's thread waits; negative: it does not
    HeldCause cause = HeldCause::kNone;  // why an activated round does not end here
    std::uint64_t held_round = 0;        // that round
    double told_at = -1;                 // rank 0 last said why
  };
  Wait present_wait();
  // Everything there is to say, for people.
  struct Condition {
    std::string name;
    std::size_t number = 0;  // on this rank
    bool answers = false;    // false: the channel's lock is held; nothing else is known then
    Wait wait;
    std::string member;  // Member::describe()
    ChannelStats stats;
    std::uint64_t applied = 0;
    int results = 0;
    int ring_capacity = 0;
    int held_contributions = 0;
    std::size_t free_buffers = 0;
    std::size_t buffer_bytes = 0;
    double called_ago = -1;  // the last deposit; negative: never
    bool flushing = false;
    bool left = false;
    std::string rejected;
    std::string told;  // by rank 0, of a stall
  };
  Condition condition();
  void set_told(std::string text);
  // Among the channels of this rank; before anything else happens.
  void set_number(std::size_t number);

  // ---- the progress thread --------------------------------------------------

  void on_opened(ChannelId id);
  void on_rejected(const std::string& reason);
  // What the coordinator, where it is on this rank, waits at present.
  void set_grace_seconds(double seconds) { grace_seconds_.store(seconds); }
  void on_members(const Members& message);
  Status on_activate(const Activate& message);
  Status on_defer(const Defer& message);
  Status on_deliver(const Deliver& message);
  std::uint64_t published();
  // Moves the present round on. True if anything happened.
  bool advance();
  // When advance() is to be called at the latest.
  double next_deadline() const { return report_at_; }
  // A transfer of this channel failed, or what came cannot be right.
  const Status& round_status() const { return bad_round_.ok() ? allreduce_->status() : bad_round_; }
  // Something failed (the latch says what): whoever waits here learns it.
  void on_failure();

 private:
  struct Result {
    std::uint8_t* buffer = nullptr;
    RoundHeader header;
  };

  // With mutex_ held:
  Status check() const;  // nothing failed, nobody disagreed
  Status describe(const Status& status) const;
  Status misuse(const std::string& what) const;
  void send(Message message);  // at once, or when the id is known
  bool settled() const { return failure_->failed() || !rejected_.ok() || member_.ready(); }
  void note_return(int* available, bool* flushed);
  Wait wait_state() const;
  ChannelStats stats_now() const;
  // Locks nothing.
  void record(FlightKind kind, std::uint64_t round, std::int32_t count = 0, std::int32_t other = 0,
              std::uint8_t detail = 0) const;
  Result& result(int index) { return ring_[(ring_head_ + index) % ring_.size()]; }
  void drop_results(int count);

  // The ranks' bits; or what is wrong with the ranks.
  Status to_bits(const std::vector<int>& ranks, std::vector<std::uint64_t>* bits) const;

  bool try_join();
  bool sum_is_here();
  void publish();
  // What a process that does not answer makes necessary: channel_silence.cc.
  Status set_aside(bool wanted);
  void publish_null();
  void receive(int from);
  // The rank that gives this one the result of that round; -1: none does.
  int giver(std::uint64_t round) const;
  // If the round just joined is one that does not end.
  void begin_deferred();
  bool tend_others();
  void report_held();
  void end_held();
  // Tells whoever waits, if there is something to tell; releases the lock.
  void announce(std::unique_lock<std::mutex> lock);
  double* header_block(std::uint8_t* buffer) const;

  const ChannelOptions options_;
  const TensorLayout layout_;  // the user's tensors and, last, the header block
  const int rank_;
  const int size_;
  const Clock* clock_;
  const FailureLatch* failure_;
  ChannelHost* host_;
  FlightRecorder* recorder_;
  std::size_t number_ = 0;
  std::atomic<ChannelId> recorded_id_{FlightEvent::kNoChannel};

  std::mutex mutex_;
  std::condition_variable changed_;
  Member member_;
  BufferPool pool_;
  KeptResults kept_;
  std::uint8_t* send_buffer_;
  std::vector<Result> ring_;
  std::size_t ring_head_ = 0;
  Status rejected_;
  std::optional<ChannelId> id_;
  std::vector<Message> unsent_;  // until the id is known
  std::function<void()> ready_;
  std::uint64_t deposits_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t total_contributions_ = 0;
  double total_weight_ = 0;
  std::uint64_t full_rounds_ = 0;
  std::uint64_t flushes_ = 0;
  double blocked_seconds_ = 0;
  double deposit_seconds_ = 0;
  double compute_seconds_ = 0;  // before the last call
  double called_at_ = -1;       // end of the last deposit, until wait() returns
  double returned_at_ = -1;     // when wait() returned
  double deposited_at_ = -1;    // end of the last deposit
  std::string told_;            // by rank 0, of a stall
  double told_at_ = -1;
  std::vector<double> compute_seconds_of_;
  std::vector<int> excluded_;
  std::uint64_t dropped_ = 0;
  std::uint64_t made_without_ = 0;
  std::uint64_t deferred_rounds_ = 0;
  std::atomic<double> grace_seconds_{-1};

  // The progress thread's own.
  Transport* transport_;
  std::uint8_t* scratch_;
  std::unique_ptr<Allreduce> allreduce_;
  std::vector<int> members_;
  struct MembersFrom {
    std::uint64_t round;
    std::vector<int> members;
    std::vector<int> excluded;
    bool drop = false;  // what this rank gives, because it is among them
  };
  std::vector<MembersFrom> coming_members_;  // announced, for rounds not joined yet
  std::uint64_t activated_rounds_ = 0;
  bool drop_own_ = false;
  Snapshot own_;
  std::uint8_t* reducing_ = nullptr;
  std::uint64_t given_to_ = 0;
  RoundHeader header_;
  Status bad_round_;
  // What brings the sum of the present round.
  enum class Source { kNone, kReduction, kDeferredReduction, kOtherRank };
  Source source_ = Source::kNone;
  Completion received_;
  DeferredReductions deferred_;
  std::vector<Defer> to_defer_;      // rounds not joined yet
  std::vector<Deliver> deliveries_;  // to this rank
  int extra_buffers_ = 0;
  double report_at_ = kNever;  // that the present round does not end
  bool reported_ = false;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_CHANNEL_H_

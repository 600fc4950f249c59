// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_MEMBER_H_
#define HVD_PARTIAL_PROTOCOL_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/messages.h"

namespace hvd_partial {

// What a rank puts into one round.
struct Snapshot {
  std::uint64_t round = 0;
  Mode mode;
  bool flush = false;     // this round ends a flush
  int contributions = 0;  // 0: a null contribution
  double weight = 0;      // sum over the contributions
  int skipped = 0;        // contributions left out since the last snapshot
  int dropped = 0;        // contributions thrown away, because the rank is excluded
};

// One rank's view of one channel: what it holds, what it has seen, whether it
// may join the round that was activated. A pure state machine: the buffers
// are the engine's affair, and the caller serialises the calls.
//
// At any moment: applied() <= published() <= joined() <= published() + 1.
class Member {
 public:
  struct Options {
    int max_lag = 8;
    bool latest_only = false;  // keep the newest result only (the paper's receive buffer)
    std::vector<double> staleness_weights{1.0};  // by rounds late; the last one for all above
    Mode mode;                                   // until the first round says otherwise
  };

  explicit Member(Options options);

  // ---- for the user's thread ------------------------------------------------

  struct Deposit {
    double weight;    // scales the contribution
    bool accumulate;  // the send buffer holds something already
  };
  // Until end_deposit() no round takes the send buffer: a contribution is
  // never torn, and the weight is that of the round which will take it.
  Deposit begin_deposit();
  // What to tell the coordinator, but for the channel and the seconds.
  // `skipped`: nothing was deposited after all.
  Call end_deposit(bool skipped);

  // The oldest `count` results have been applied.
  void release(int count);
  // Results being read stay as they are until released.
  void pin() { pinned_ = takeable(); }

  void begin_flush() { flush_ = FlushState::kRunning; }
  // True if the send buffer still holds something for the next round.
  bool leave();

  // wait() has something to say: results, or the end of the flush, or a null
  // round where a result was waited for.
  bool ready() const;

  // ---- for the progress thread ----------------------------------------------

  // False if the message does not fit the state: the ranks have lost step.
  bool on_activate(const Activate& message);
  // A round was activated and nothing here stands against taking part.
  bool can_join() const;
  // Takes part in it: what the send buffer holds goes in, or, with `drop`, is
  // thrown away.
  Snapshot join(bool drop = false);
  // Takes no part in it: the result comes from elsewhere.
  Snapshot pass();
  // How many of the newest results the coming one replaces unread; a null
  // round, which is no result, replaces none.
  int superseded(int contributions) const {
    return options_.latest_only && !left_ && contributions > 0 ? results() - pinned_ : 0;
  }
  // The round joined last is complete. False: nobody here will read it (a
  // null round, or this rank has left). The newest superseded() are forgotten.
  bool publish(const Snapshot& own, int contributions);

  // ---- state ----------------------------------------------------------------

  int results() const { return static_cast<int>(unreleased_.size()); }
  // Of these, those to be applied now: a rank that has ended a flush stands
  // where all others stood then, until it calls again, even if they have gone
  // on meanwhile.
  int takeable() const;
  bool flushing() const { return flush_ == FlushState::kRunning; }
  bool flush_ended() const { return flush_ == FlushState::kEnded; }
  bool depositing() const { return depositing_; }
  bool left() const { return left_; }
  // Activated, not joined yet.
  bool activated() const { return !activated_.empty(); }
  const Activate& next() const { return activated_.front(); }
  std::uint64_t activated_rounds() const { return joined_ + activated_.size(); }
  int held_contributions() const { return contributions_; }
  const Mode& mode() const { return mode_; }

  std::uint64_t joined() const { return joined_; }
  std::uint64_t published() const { return published_; }
  // All rounds before it are in this rank's weights, or were missed before
  // the last one that is.
  std::uint64_t applied() const { return unreleased_.empty() ? published_ : applied_; }
  int lag() const { return static_cast<int>(published_ - applied()); }
  int largest_lag() const { return largest_lag_; }
  std::uint64_t late_deposits() const { return late_deposits_; }
  std::uint64_t missed() const { return missed_; }

  // For people and tests: all that decides what happens next.
  std::string describe() const;

 private:
  friend class ProtocolState;  // tests/native: all that describe() says, in numbers

  enum class FlushState { kNone, kRunning, kEnded };

  const Options options_;
  Mode mode_;  // of the last round activated
  // Not joined yet, in order. Two at most (a flush or departure can complete a
  // round while the one before it is still on its way to other ranks), but for
  // a rank that was left out.
  std::vector<Activate> activated_;
  FlushState flush_ = FlushState::kNone;
  std::uint64_t flush_end_ = 0;  // rounds before it belong to the flush that ended
  bool left_ = false;

  bool depositing_ = false;
  double deposit_weight_ = 1;
  int contributions_ = 0;  // in the send buffer
  double weight_ = 0;
  int skipped_ = 0;

  std::uint64_t joined_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t applied_ = 0;              // while there are unreleased results
  std::uint64_t awaited_ = 0;              // the round that the last call asked for
  std::vector<std::uint64_t> unreleased_;  // rounds of the results that lie in the ring
  int pinned_ = 0;

  int largest_lag_ = 0;
  std::uint64_t late_deposits_ = 0;
  std::uint64_t missed_ = 0;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_MEMBER_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_COORDINATOR_H_
#define HVD_PARTIAL_PROTOCOL_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "protocol/grace.h"
#include "protocol/messages.h"
#include "protocol/stall.h"

namespace hvd_partial {

// Decides, for all ranks, when the rounds of each channel start, in which
// mode, and who takes part. Lives on rank 0. A pure state machine: messages
// and the time go in, messages come out.
class Coordinator {
 public:
  static constexpr int kEverybody = -1;
  struct Outgoing {
    int to;  // a rank or kEverybody
    Message message;
  };

  explicit Coordinator(int size);

  // Why a message of `from` cannot be right as things stand, though it is well
  // formed; empty if it can. For what comes from other processes, before
  // handle() gets it.
  std::string objection(int from, const Message& message) const;
  // Appends what is to be sent to `out`.
  void handle(int from, const Message& message, double now, std::vector<Outgoing>* out);
  // A process died. False if it had said goodbye before and no round waits for
  // it any more, which harms nobody.
  bool on_peer_lost(int peer, const std::string& reason, std::vector<Outgoing>* out);
  // To be called at next_deadline() or later.
  void tick(double now, std::vector<Outgoing>* out);
  double next_deadline() const;

  // Ranks that do not answer for so long are left out of rounds that can do
  // without them; 0 (the default): never.
  void set_leave_out_seconds(double seconds) { leave_out_seconds_ = seconds; }
  // Lines for people: who was left out, who is back.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

  // Grace in force on the channel, in seconds; negative if there is none such.
  double grace_seconds(ChannelId channel) const;
  bool all_gone() const;

  // Whatever ranks wait for at this moment, for however short a time.
  std::vector<Stall> stalls(double now) const;

  // For people and tests: all that decides what happens next, but for the
  // grace that is learned. Ranks are - absent, A active, F flushing,
  // D departing or L left.
  std::string describe() const;

 private:
  friend class ProtocolState;  // tests/native: all that describe() says, in numbers

  enum class Presence : std::uint8_t {
    kAbsent,     // has not opened the channel
    kActive,     // counts
    kFlushing,   // takes part in rounds, is not waited for
    kDeparting,  // has left, takes part in one more round
    kLeft,
  };

  // A reduction that had begun when a rank was left out; it ends when all of
  // its members are back.
  struct Deferred {
    std::uint64_t round = 0;
    std::vector<bool> members;
  };

  struct ChannelState {
    ChannelId id = 0;
    std::string name;
    std::string signature;
    int first_opener = 0;
    std::string rejection;  // not empty: the ranks disagree
    Mode mode;
    double grace_option = -1;
    GraceEstimator grace;
    std::uint64_t next_round = 0;
    std::vector<Presence> presence;
    // Of ranks that have left: the round after their last, and the round before
    // which all is complete there.
    std::vector<std::uint64_t> until;
    std::vector<std::uint64_t> completed;
    std::vector<bool> waiting;            // for next_round
    std::vector<double> arrived;          // when, for those waiting or flushing
    std::vector<double> called;           // the last call; negative: never
    std::vector<HeldRound> held;          // what the ranks say of a round that does not end
    bool members_changed = true;          // since they were last announced
    std::vector<std::uint64_t> excluded;  // a bit each; empty: nobody
    bool drop_excluded = false;
    bool exclusion_void = false;  // nobody else would be left
    std::uint64_t decided = 0;    // number of the last Decide
    double deadline = kNever;     // end of the present grace

    std::uint64_t max_lag = 0;                 // 0: nobody can be left out
    std::vector<std::uint64_t> applied;        // at least so many rounds, by rank
    std::vector<std::uint64_t> left_out_from;  // made without the rank from there on, or kNoRound
    std::vector<bool> left_in_round;           // that rank: in the round before, which was deferred
    std::vector<bool> last_members;            // of the round that was activated last
    bool last_can_be_deferred = false;         // that round: no flush, not deferred before
    std::vector<std::uint64_t> back_from;      // rounds before it are given to the rank
    std::vector<Deferred> deferred;
    std::uint64_t after_deferred = 0;  // the round after the last one that was deferred
  };

  void open(int from, const OpenChannel& message, double now, std::vector<Outgoing>* out);
  void call(int from, const Call& message, double now, std::vector<Outgoing>* out);
  void leave(int from, ChannelState* channel, const Leave& message, double now,
             std::vector<Outgoing>* out);
  void goodbye(int from, double now, std::vector<Outgoing>* out);
  void held(int from, const Held& message, double now);
  void set_mode(const SetMode& message, double now, std::vector<Outgoing>* out);
  void exclude(ChannelState* channel, const std::vector<std::uint64_t>& bits, bool drop);
  void decide(const Decide& message, double now, std::vector<Outgoing>* out);

  // Starts the next round of the channel if its time has come.
  void trigger(ChannelState* channel, double now, std::vector<Outgoing>* out);
  void activate(ChannelState* channel, bool flush, double now, std::vector<Outgoing>* out,
                std::uint64_t deferred = kNoRound);
  Members members_of(const ChannelState& channel) const;
  void announce_members(ChannelState* channel, std::vector<Outgoing>* out);
  // Takes those that no round waits for out of active_.
  void leave_out_excluded(ChannelState* channel);
  // `counting`: so many ranks count, those that are left out among them.
  bool quorum_reached(const ChannelState& channel, const std::vector<int>& active,
                      int counting) const;
  void note_quorum(ChannelState* channel, double now);
  double grace_of(const ChannelState& channel) const;
  ChannelState* find(const std::string& name);
  const ChannelState* find(const std::string& name) const;
  ChannelState* find(ChannelId id);
  std::string objection_to_channel(int from, ChannelId id) const;

  // ---- ranks that do not answer: silence.cc ---------------------------------
  void suspect(double now, std::vector<Outgoing>* out);
  void frozen(int from, const Frozen& message, double now, std::vector<Outgoing>* out);
  void end_freeze(double now, std::vector<Outgoing>* out);
  void leave_out(ChannelState* channel, std::vector<Outgoing>* out);
  void come_back(int rank, double now, std::vector<Outgoing>* out);
  // A rank that can give the results since `first`.
  int donor(const ChannelState& channel, std::uint64_t first, int except) const;
  bool held_by_silence(const ChannelState& channel) const;
  bool left_out(const ChannelState& channel, int rank) const {
    return channel.left_out_from[rank] != kNoRound;
  }
  bool anybody_left_out(const ChannelState& channel) const;
  // The rings of those left out could not take one round more.
  bool out_of_room(const ChannelState& channel) const;
  const Deferred* complete_deferred(const ChannelState& channel) const;
  // To those that were left out when it began, and are not now.
  void give_deferred(const ChannelState& channel, const Deferred& deferred,
                     std::vector<Outgoing>* out) const;
  std::string objection_to_frozen(const Frozen& message) const;

  // Who still answers, and how far everybody is: asked while no round can end.
  struct Census {
    std::uint64_t number = 0;
    bool under_way = false;
    bool extended = false;
    double begun = 0;
    double deadline = kNever;
    std::vector<bool> asked;
    std::vector<bool> answered;
    std::vector<std::vector<std::uint64_t>> published;
    std::vector<bool> returned;  // had been silent, and answered meanwhile
  };
  const int size_;
  std::vector<ChannelState> channels_;  // index = id
  std::vector<bool> gone_;              // said goodbye
  std::optional<Mode> default_mode_;    // set for all channels, also future ones
  double still_training_sent_ = -kNever;
  std::vector<int> active_;  // scratch of trigger()

  double leave_out_seconds_ = 0;
  double suspicion_ = kNever;  // when to ask whether all are there
  std::vector<bool> silent_;   // did not answer when asked
  std::vector<double> silent_since_;
  Census census_;
  std::vector<std::string> notices_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_COORDINATOR_H_

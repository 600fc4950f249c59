// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "simulation/protocol_simulation.h"

#include <algorithm>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "protocol/coordinator.h"
#include "protocol/member.h"

namespace hvd_partial {
namespace {

// Of those that happen at the same moment the first kind comes first: a rank
// that has computed until an activation arrives is in that round.
enum class EventKind : std::uint8_t { kComputed, kPublished, kApplied, kCalled, kActivated };

struct Event {
  double time = 0;
  EventKind kind = EventKind::kComputed;
  std::uint64_t sequence = 0;
  int rank = 0;         // of kComputed, kApplied, kCalled
  Call call;            // of kCalled
  bool at_home = true;  // of kActivated: rank 0, or all others

  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.time, a.kind, a.sequence) > std::tie(b.time, b.kind, b.sequence);
  }
};

class ProtocolSimulation {
 public:
  ProtocolSimulation(const SimulatedJob& job, const Trace& trace);

  Status run(const std::function<bool(double)>& keep_going);
  SimulatedOutcome outcome() const;

 private:
  struct Rank {
    explicit Rank(Member::Options options) : member(std::move(options)) {}

    Member member;
    Snapshot own;                     // what it gave to the present round
    std::vector<std::uint64_t> held;  // rounds that each held contribution comes late by
    std::vector<std::uint64_t> given;
    std::uint64_t steps = 0;
    std::uint64_t contributions = 0;
    double called_at = 0;
    bool waiting = false;
    int applying = 0;
    double waited_seconds = 0;
  };

  void at(double seconds, Event event);
  void begin_step(int rank);
  void call(int rank);
  void try_return(int rank);
  void activate(int first, int last);
  void join(int rank);
  void publish();
  void dispatch();
  Status internal(const std::string& what) const;

  const SimulatedJob job_;
  const Trace& trace_;
  double now_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  Coordinator coordinator_;
  std::vector<Coordinator::Outgoing> decisions_;
  std::vector<Rank> ranks_;
  std::queue<Activate> activated_[2];  // under way: to rank 0, to all others
  std::uint64_t joined_ = 0;           // ranks, in the present round
  double activated_at_ = 0;            // the present round, at the last rank
  double held_up_seconds_ = 0;
  std::uint64_t contributions_ = 0;
  std::vector<std::uint64_t> rounds_with_;
  std::vector<std::uint64_t> staleness_;
  Status status_;
};

ProtocolSimulation::ProtocolSimulation(const SimulatedJob& job, const Trace& trace)
    : job_(job), trace_(trace), coordinator_(job.ranks) {
  Member::Options options;
  options.max_lag = job.max_lag;
  options.mode = job.mode;
  ranks_.reserve(job.ranks);
  const OpenChannel open{"gradients", "", job.mode, job.grace_seconds};
  for (int rank = 0; rank < job.ranks; ++rank) {
    ranks_.emplace_back(options);
    coordinator_.handle(rank, open, now_, &decisions_);  // the ids it answers with are all 0
    begin_step(rank);
  }
}

Status ProtocolSimulation::internal(const std::string& what) const {
  return Status(ErrorCode::kInternal, "simulation of " + std::to_string(job_.ranks) +
                                          " ranks in mode " + to_string(job_.mode) + ", at " +
                                          std::to_string(now_) + " s: " + what);
}

void ProtocolSimulation::at(double seconds, Event event) {
  event.time = seconds;
  event.sequence = next_sequence_++;
  events_.push(std::move(event));
}

void ProtocolSimulation::begin_step(int rank) {
  Event event;
  event.kind = EventKind::kComputed;
  event.rank = rank;
  at(now_ + trace_.seconds(rank, ranks_[rank].steps++), std::move(event));
}

void ProtocolSimulation::call(int rank) {
  Rank& self = ranks_[rank];
  self.member.begin_deposit();
  self.held.push_back(self.member.joined() - self.member.applied());
  Event event;
  event.kind = EventKind::kCalled;
  event.rank = rank;
  event.call = self.member.end_deposit(/*skipped=*/false);
  at(now_ + (rank == 0 ? 0 : job_.message_seconds), std::move(event));
  self.called_at = now_;
  self.waiting = true;
  try_return(rank);
}

void ProtocolSimulation::try_return(int rank) {
  Rank& self = ranks_[rank];
  if (!self.waiting || !self.member.ready()) return;
  self.waiting = false;
  self.waited_seconds += now_ - self.called_at;
  self.applying = self.member.takeable();
  self.member.pin();
  Event event;
  event.kind = EventKind::kApplied;
  event.rank = rank;
  at(now_ + self.applying * job_.apply_seconds, std::move(event));
}

void ProtocolSimulation::join(int rank) {
  Rank& self = ranks_[rank];
  if (!self.member.can_join()) return;
  self.own = self.member.join();
  self.given.swap(self.held);
  self.held.clear();
  if (++joined_ < ranks_.size()) return;
  joined_ = 0;
  held_up_seconds_ += now_ - activated_at_;
  Event event;
  event.kind = EventKind::kPublished;
  at(now_ + job_.reduce_seconds, std::move(event));
}

void ProtocolSimulation::publish() {
  int contributions = 0;
  for (Rank& rank : ranks_) {
    contributions += rank.own.contributions;
    rank.contributions += rank.own.contributions;
    for (const std::uint64_t late : rank.given) {
      if (staleness_.size() <= late) staleness_.resize(late + 1, 0);
      ++staleness_[late];
    }
  }
  contributions_ += contributions;
  if (rounds_with_.size() <= static_cast<std::size_t>(contributions)) {
    rounds_with_.resize(contributions + 1, 0);
  }
  ++rounds_with_[contributions];
  for (Rank& rank : ranks_) rank.member.publish(rank.own, contributions);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    try_return(static_cast<int>(rank));
    join(static_cast<int>(rank));
  }
}

void ProtocolSimulation::activate(int first, int last) {
  auto& queue = activated_[first == 0 ? 0 : 1];
  const Activate message = queue.front();
  queue.pop();
  activated_at_ = now_;
  for (int rank = first; rank <= last; ++rank) {
    if (!ranks_[rank].member.on_activate(message)) {
      status_ = internal("round " + std::to_string(message.round) + " was activated out of turn");
      return;
    }
    join(rank);
  }
}

// Activations go to everybody at once: one event for rank 0, which the
// coordinator is on, and one for the others.
void ProtocolSimulation::dispatch() {
  for (const auto& [to, message] : decisions_) {
    const auto* activation = std::get_if<Activate>(&message);
    if (activation == nullptr || to > 1) continue;
    Event event;
    event.kind = EventKind::kActivated;
    event.at_home = to == 0;
    activated_[to].push(*activation);
    at(now_ + (to == 0 ? 0 : job_.message_seconds), std::move(event));
  }
  decisions_.clear();
}

Status ProtocolSimulation::run(const std::function<bool(double)>& keep_going) {
  constexpr std::uint64_t kEventsBetweenQuestions = 1 << 13;
  const int last = job_.ranks - 1;
  decisions_.clear();
  for (std::uint64_t count = 0; contributions_ < job_.contributions; ++count) {
    if (count % kEventsBetweenQuestions == 0 && keep_going != nullptr &&
        !keep_going(static_cast<double>(contributions_) / job_.contributions)) {
      return Status(ErrorCode::kAborted, "the simulation was interrupted");
    }
    const double deadline = coordinator_.next_deadline();
    if (!events_.empty() && events_.top().time <= deadline) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      switch (event.kind) {
        case EventKind::kComputed:
          call(event.rank);
          break;
        case EventKind::kApplied: {
          Rank& rank = ranks_[event.rank];
          rank.member.release(std::exchange(rank.applying, 0));
          begin_step(event.rank);
          join(event.rank);  // a full ring may have kept it from a round
          break;
        }
        case EventKind::kPublished:
          publish();
          break;
        case EventKind::kCalled:
          coordinator_.handle(event.rank, event.call, now_, &decisions_);
          break;
        case EventKind::kActivated:
          if (event.at_home) {
            activate(0, 0);
          } else {
            activate(1, last);
          }
          break;
      }
    } else if (deadline != kNever) {
      now_ = std::max(now_, deadline);
      coordinator_.tick(now_, &decisions_);
    } else {
      return internal("nothing will ever happen again");
    }
    dispatch();
    if (!status_.ok()) return status_;
  }
  return {};
}

SimulatedOutcome ProtocolSimulation::outcome() const {
  SimulatedOutcome outcome;
  outcome.seconds = now_;
  outcome.contributions = contributions_;
  outcome.rounds_with = rounds_with_;
  outcome.staleness = staleness_;
  for (const Rank& rank : ranks_) {
    outcome.contributions_of.push_back(rank.contributions);
    outcome.waiting_seconds_of.push_back(rank.waited_seconds +
                                         (rank.waiting ? now_ - rank.called_at : 0));
    outcome.largest_lag = std::max(outcome.largest_lag, rank.member.largest_lag());
  }
  outcome.held_up_seconds = held_up_seconds_;
  outcome.grace_seconds = coordinator_.grace_seconds(0);
  return outcome;
}

}  // namespace

Status simulate(const SimulatedJob& job, const Trace& trace,
                const std::function<bool(double)>& keep_going, SimulatedOutcome* outcome) {
  const std::string who = "simulation of " + std::to_string(job.ranks) + " ranks: ";
  if (job.ranks < 1 || !valid(job.mode, job.ranks)) {
    return Status(ErrorCode::kInvalidArgument,
                  who + "mode " + to_string(job.mode) + " does not fit them");
  }
  if (job.max_lag < 1) {
    return Status(ErrorCode::kInvalidArgument,
                  who + "max_lag " + std::to_string(job.max_lag) + " must be at least 1");
  }
  ProtocolSimulation simulation(job, trace);
  if (Status status = simulation.run(keep_going); !status.ok()) return status;
  *outcome = simulation.outcome();
  return {};
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "exploration_world.h"

#include <algorithm>
#include <variant>

namespace hvd_partial {
namespace {

const std::vector<double> kWeights{1.0, 0.5, 0.25, 0.125, 0.0625};

// Weights depend on the mode that a rank has heard of last.
bool weights_follow_mode(const Job& job) {
  return full_weights(job.mode) ||
         std::any_of(job.programs.begin(), job.programs.end(), [](const std::string& program) {
           return program.find('y') != std::string::npos;
         });
}

}  // namespace

World::World(const Job& job)
    : job_(&job), size_(static_cast<int>(job.programs.size())), mode_(job.mode) {
  Member::Options options;
  options.max_lag = job.max_lag;
  options.latest_only = job.latest_only;
  options.staleness_weights = kWeights;
  options.mode = job.mode;
  coordinator_.emplace(size_);
  for (int i = 0; i < size_; ++i) ranks_[static_cast<std::size_t>(i)].emplace(options);
}

// ---- what can happen --------------------------------------------------------

World::Events World::events() const {
  Events all;
  for (int i = 0; i < size_; ++i) {
    const Rank& rank = this->rank(i);
    if (may_act(rank)) all.add(Event::Kind::kActs, i);
    if (!rank.up.empty() && coordinator_lives()) all.add(Event::Kind::kIsHeard, i);
    if (!rank.down.empty()) all.add(Event::Kind::kHears, i);
    if (may_join(rank)) all.add(Event::Kind::kJoins, i);
    if (may_publish(rank)) all.add(Event::Kind::kPublishes, i);
    if (i == job_->victim && !died_) all.add(Event::Kind::kDies, i);
    if (rank.notices_death) all.add(Event::Kind::kNotices, i);
  }
  if (coordinator_lives() && coordinator_->next_deadline() != kNever) {
    all.add(Event::Kind::kGraceEnds, -1);
  }
  return all;
}

// Orders of events that come to the same need not all be looked at. An event
// may be taken at once, and alone, if it stays possible and does the same
// whatever else happens before it (a persistent set of one event; the graph of
// states has no cycles, so that nothing is put off for ever):
//
// - A rank hears of a round. Nothing else at this rank looks at rounds that
//   are not joined yet: hearing late is the same as joining late. That does
//   not hold if its mode decides the weight of a deposit.
// - The coordinator hears a call that asks for no round, or for one that has
//   started already: it only teaches the grace, which is not learned here.
// - The coordinator hears once more of a departure, which matters only if that
//   rank may be lost.
// - A contribution has been copied, and no round is under way at this rank: none
//   can be joined before that, nor published.
// - A rank that waits joins a round, or publishes it: its user's thread can do
//   nothing before that. Others are waiting for it, none can be stopped by it.
//
// With a rank that may die, an event that others see (a round is joined) is
// not the same before and after the failure, and is not taken at once. The
// others are: what a failed rank has heard, sent or published tells nobody
// anything, and a message of a dead one may be lost.
//
// So with a victim this is an argument and no equality of states (the ghost
// state of the ends differs): two ranks are explored without it.
// exploration_reduction_test.cc checks the rest state by state.
World::Events World::urgent() const {
  Events all;
  const bool hears_at_once = !weights_follow_mode(*job_);
  for (int i = 0; i < size_; ++i) {
    const Rank& rank = this->rank(i);
    if (hears_at_once && !rank.down.empty() &&
        (std::holds_alternative<Activate>(rank.down.front()) ||
         std::holds_alternative<Members>(rank.down.front()))) {
      all.add(Event::Kind::kHears, i);
    }
    if (!rank.up.empty() && coordinator_lives()) {
      const auto* call = std::get_if<Call>(&rank.up.front());
      const bool again =
          rank.heard_leave && i != job_->victim && std::holds_alternative<Leave>(rank.up.front());
      if (again || (call != nullptr && (!call->waiting || call->round < activated()))) {
        all.add(Event::Kind::kIsHeard, i);
      }
    }
    if (rank.fate != Fate::kAlive) continue;
    if (rank.phase == Phase::kDepositing && !rank.joined.has_value()) {
      all.add(Event::Kind::kActs, i);
    }
    if (!blocked(rank)) continue;
    if (job_->victim < 0 && may_join(rank)) all.add(Event::Kind::kJoins, i);
    if (may_publish(rank)) all.add(Event::Kind::kPublishes, i);
  }
  return all;
}

void World::happen(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kActs:
      return act(event.rank);
    case Event::Kind::kIsHeard:
      return deliver_up(event.rank);
    case Event::Kind::kHears:
      return deliver_down(event.rank);
    case Event::Kind::kJoins:
      return join(event.rank);
    case Event::Kind::kPublishes:
      return publish(event.rank);
    case Event::Kind::kDies:
      return die(event.rank);
    case Event::Kind::kNotices:
      return notice(event.rank);
    case Event::Kind::kGraceEnds:
      return end_grace();
  }
}

bool World::may_act(const Rank& rank) const {
  if (rank.fate != Fate::kAlive) return false;
  switch (rank.phase) {
    case Phase::kIdle:
      return !rank.gone;
    case Phase::kDepositing:
    case Phase::kReading:
      return true;
    case Phase::kWaiting:
    case Phase::kFlushing:
      return rank.member.ready();
  }
  return false;
}

// Its user's thread can do nothing before its progress thread has.
bool World::blocked(const Rank& rank) const { return rank.fate == Fate::kAlive && !may_act(rank); }

bool World::may_join(const Rank& rank) const {
  if (rank.fate != Fate::kAlive || rank.joined.has_value()) return false;
  if (rank.activated_members.empty()) return false;
  if (rank.member.can_join()) return true;
  if (fault(Fault::kIgnoresTheRing)) return !rank.member.depositing();
  return fault(Fault::kTearsADeposit) && rank.member.depositing();
}

bool World::may_publish(const Rank& rank) const {
  if (rank.fate != Fate::kAlive || !rank.joined.has_value()) return false;
  if (fault(Fault::kPublishesEarly)) return true;
  const Round& round = this->round(rank.joined->round);
  std::uint64_t joined = round.joined;
  if (fault(Fault::kGoesOnWithoutTheLost) && died_) joined |= bit(job_->victim);
  return (round.members & ~joined) == 0;
}

// ---- a rank -----------------------------------------------------------------

void World::act(int index) {
  Rank& rank = change(index);
  if (!rank.opened) {
    rank.opened = true;
    return send(&rank, OpenChannel{"g", "", job_->mode, job_->grace});
  }
  if (rank.phase == Phase::kDepositing) return end_deposit(index);
  if (rank.phase == Phase::kReading) return release(index);
  if (rank.phase != Phase::kIdle) return returns(index);
  if (rank.next == program(index).size()) {
    rank.gone = true;
    if (!rank.member.left()) leave(&rank);
    return send(&rank, Goodbye{});
  }
  const char step = program(index)[rank.next];
  switch (step) {
    case 'a':
      return begin_deposit(&rank);
    case 'f':
      rank.member.begin_flush();
      rank.phase = Phase::kFlushing;
      return send(&rank, Flush{});
    case 'l':
      leave(&rank);
      break;
    default: {
      SetMode message;
      message.channel = 0;
      message.mode.kind = step == 's'   ? ModeKind::kSync
                          : step == 'o' ? ModeKind::kSolo
                                        : ModeKind::kAsync;
      send(&rank, message);
    }
  }
  ++rank.next;
}

void World::send(Rank* rank, Message message) {
  if (coordinator_lives()) rank->up.push_back(std::move(message));
}

void World::begin_deposit(Rank* rank) {
  rank->phase = Phase::kDepositing;
  const Member::Deposit deposit = rank->member.begin_deposit();
  expect(deposit.accumulate == !rank->held.empty(),
         [] { return "a deposit does not know what lies there"; });
  rank->depositing = {rank->applied, full_weights(rank->known_mode)};
}

void World::end_deposit(int index) {
  Rank& rank = change(index);
  if (fault(Fault::kForgetsADeposit)) rank.held.clear();
  rank.held.push_back(std::exchange(rank.depositing, {}));
  const Call call = rank.member.end_deposit(false);
  if (call.waiting) rank.asked = static_cast<int>(call.round);
  rank.phase = Phase::kWaiting;
  const bool forgotten = fault(Fault::kForgetsACall) && index == 0 && call.round == 1;
  if (!forgotten) send(&rank, call);
  if (fault(Fault::kCountsACallTwice) && index == 0) send(&change(1), call);
}

void World::leave(Rank* rank) {
  rank->ring.clear();
  Leave message;
  message.holds_contribution = rank->member.leave();
  message.round = rank->member.published();
  if (!fault(Fault::kForgetsALeave)) send(rank, message);
}

// wait() has returned; the results are being read.
void World::returns(int index) {
  Rank& rank = change(index);
  int count = rank.member.takeable();
  if (fault(Fault::kFlushTakesTooMuch)) count = rank.member.results();
  if (!fault(Fault::kFreesWhatIsRead)) rank.member.pin();
  rank.reading.assign(rank.ring.begin(), rank.ring.begin() + count);
  const bool flushes = rank.phase == Phase::kFlushing;
  rank.phase = Phase::kReading;
  if (!job_->reads_slowly || (flushes && count == 0)) release(index);
}

void World::release(int index) {
  Rank& rank = change(index);
  const bool same = rank.ring.size() >= rank.reading.size() &&
                    std::equal(rank.reading.begin(), rank.reading.end(), rank.ring.begin());
  expect(same, [&] { return "I2: a result was replaced while " + name(index) + " read it"; });
  if (!same) return;
  for (const std::uint64_t number : rank.reading) {
    if (fault(Fault::kSkipsAResult) && index == 1 && number == 1) continue;
    // What lies between was without contributions, or came before; or a newer
    // result has replaced it.
    expect(number >= rank.applied, [] { return "I2: a result was applied twice"; });
    for (std::uint64_t between = rank.applied; between < number; ++between) {
      expect(job_->latest_only || total(between) == 0,
             [] { return "I2: a result was passed over"; });
    }
    rank.applied = number + 1;
  }
  const int count = static_cast<int>(rank.reading.size());
  rank.ring.erase(rank.ring.begin(), rank.ring.begin() + count);
  rank.reading.clear();
  rank.member.release(count);
  pass_null_rounds(&rank);
  if (program(index)[rank.next] == 'f') {
    rank.phase = Phase::kFlushing;
    if (!rank.member.flush_ended() || rank.member.takeable() > 0) return forget_rounds();
    check_flushed(index);
  }
  rank.asked = -1;
  rank.phase = Phase::kIdle;
  ++rank.next;
  forget_rounds();
}

// With an empty ring everything that was published here has been applied.
void World::pass_null_rounds(Rank* rank) {
  if (!rank->ring.empty()) return;
  for (; rank->applied < rank->member.published(); ++rank->applied) {
    expect(job_->latest_only || total(rank->applied) == 0,
           [] { return "I2: a result was never applied"; });
  }
}

void World::deliver_down(int index) {
  Rank& rank = change(index);
  const Message message = std::move(rank.down.front());
  rank.down.erase(rank.down.begin());
  if (const auto* m = std::get_if<Members>(&message)) {
    rank.coming_members = m->bits.at(0);
  } else if (const auto* m = std::get_if<Activate>(&message)) {
    expect(rank.member.on_activate(*m), [] { return "I2: a round was activated out of turn"; });
    rank.activated_members.push_back(rank.coming_members);
    rank.known_mode = m->mode;
  } else if (const auto* m = std::get_if<PeerLost>(&message)) {
    fail(&rank, m->peer);
  } else if (std::holds_alternative<AllGone>(message)) {
    rank.all_gone = true;
  }
}

void World::join(int index) {
  Rank& rank = change(index);
  const bool torn = rank.member.depositing();
  expect(!torn, [] { return "a contribution was torn"; });
  const Snapshot own = rank.member.join();
  Round& round = this->round(own.round);
  const std::uint64_t members = rank.activated_members.front();
  rank.activated_members.erase(rank.activated_members.begin());
  expect(round.mode == own.mode && round.flush == own.flush,
         [&] { return "I2: " + name(index) + " has another mode in " + name(own.round); });
  expect(round.members == members,
         [&] { return "I2: " + name(index) + " has other ranks in " + name(own.round); });
  expect(has(members, index), [] { return "I2: a rank takes part that is not a member"; });
  expect(!has(round.joined, index), [] { return "I2: a rank joins a round twice"; });
  round.joined |= bit(index);
  expect(own.contributions == static_cast<int>(rank.held.size()),
         [] { return "I1: a snapshot has not what was deposited"; });
  double weight = 0;
  for (const Held& held : rank.held) {
    expect(own.round >= held.applied, [] { return "I1: a contribution in a round before it"; });
    const std::size_t late = std::min<std::size_t>(own.round - held.applied, kWeights.size() - 1);
    weight += held.full_weight || fault(Fault::kFullWeights) ? 1.0 : kWeights[late];
  }
  expect(own.weight == weight, [] { return "a weight is not that of its lateness"; });
  round.contributions += own.contributions;
  if (own.contributions > 0) round.contributors |= bit(index);
  if (!fault(Fault::kKeepsWhatItSent)) rank.held.clear();
  rank.joined = own;
  if (round.joined == round.members) check_complete(own.round);
}

void World::publish(int index) {
  Rank& rank = change(index);
  const Snapshot own = *rank.joined;
  Round& round = this->round(own.round);
  expect(round.joined == round.members, [] { return "I2: published before all have joined"; });
  round.published |= bit(index);
  rank.joined.reset();
  const int replaced = rank.member.superseded(round.contributions);
  const bool keeps_oldest = fault(Fault::kKeepsTheOldest) && replaced > 0;
  if (!keeps_oldest) rank.ring.resize(rank.ring.size() - static_cast<std::size_t>(replaced));
  if (rank.member.publish(own, round.contributions) && !keeps_oldest)
    rank.ring.push_back(own.round);
  expect(rank.ring == ProtocolState::ring(rank.member),
         [&] { return "I2: the ring of " + name(index) + " does not hold what it should"; });
  if (rank.member.left()) {
    Leave message;
    message.round = rank.member.published();
    send(&rank, message);
  }
  if (!rank.member.left()) pass_null_rounds(&rank);
  if (job_->latest_only) {
    expect(rank.ring.size() <= 2, [] { return "I4: more than one being read and a newer one"; });
  } else {
    expect(rank.member.lag() <= job_->max_lag,
           [&] { return "I4: " + name(index) + " lags by " + std::to_string(rank.member.lag()); });
  }
  forget_rounds();
}

// ---- the coordinator --------------------------------------------------------

void World::deliver_up(int index) {
  Rank& rank = change(index);
  const Message message = std::move(rank.up.front());
  rank.up.erase(rank.up.begin());
  if (const auto* m = std::get_if<Call>(&message)) {
    if (m->waiting && rank.heard_open) rank.heard_call = static_cast<int>(m->round);
  } else if (const auto* m = std::get_if<SetMode>(&message)) {
    mode_ = m->mode;
  }
  rank.heard_open |= std::holds_alternative<OpenChannel>(message);
  rank.heard_flush |= std::holds_alternative<Flush>(message);
  rank.heard_leave |=
      std::holds_alternative<Leave>(message) || std::holds_alternative<Goodbye>(message);
  std::vector<Coordinator::Outgoing> out;
  coordinator_.change().handle(index, message, 0.0, &out);
  route(out);
  check_progress();
}

void World::end_grace() {
  std::vector<Coordinator::Outgoing> out;
  coordinator_.change().tick(coordinator_->next_deadline(), &out);
  route(out);
  check_progress();
}

void World::route(const std::vector<Coordinator::Outgoing>& out) {
  for (const auto& outgoing : out) {
    const Message& message = outgoing.message;
    // What only tells that a channel is open, or that there is life, changes nothing here.
    const bool matters =
        std::holds_alternative<Members>(message) || std::holds_alternative<Activate>(message) ||
        std::holds_alternative<PeerLost>(message) || std::holds_alternative<AllGone>(message);
    if (!matters) continue;
    const auto* members = std::get_if<Members>(&message);
    const auto* activate = std::get_if<Activate>(&message);
    if (members != nullptr) announced_ = members->bits.at(0);
    if (activate != nullptr) note_activation(*activate);
    for (int i = 0; i < size_; ++i) {
      if (outgoing.to != Coordinator::kEverybody && outgoing.to != i) continue;
      if (rank(i).fate != Fate::kAlive) continue;
      if (std::holds_alternative<AllGone>(message) && (i == 0 || job_->victim < 0)) {
        change(i).all_gone = true;  // on rank 0 at once; elsewhere nothing else can come
        continue;
      }
      const bool lost =
          (fault(Fault::kForgetsAnActivation) && i == 1 && activate != nullptr &&
           activate->round == 1) ||
          (fault(Fault::kForgetsTheMembers) && i == 0 && members != nullptr &&
           members->bits.at(0) != bit(size_) - 1) ||
          (fault(Fault::kLossNotToldToOne) && i == 1 && std::holds_alternative<PeerLost>(message));
      if (lost) continue;
      std::vector<Message>& down = change(i).down;
      down.push_back(message);
      if (auto* copy = std::get_if<Activate>(&down.back())) {
        if (fault(Fault::kActivatesOneModeEarly) && i == 1 && copy->round == 1) {
          copy->mode.kind = ModeKind::kSolo;
        }
        if (fault(Fault::kRepeatsAnActivation) && i == 1) down.push_back(message);
      } else if (auto* copy = std::get_if<PeerLost>(&down.back())) {
        if (fault(Fault::kLossNamesAnother)) copy->peer = 0;
      }
    }
  }
}

// ---- a lost rank ------------------------------------------------------------

void World::die(int index) {
  died_ = true;
  Rank& victim = change(index);
  victim.fate = Fate::kDead;
  victim.down.clear();
  if (index != 0) {
    change(0).notices_death = true;
    return;
  }
  for (int i = 0; i < size_; ++i) {
    Rank& rank = change(i);
    rank.up.clear();
    rank.notices_death = i != 0;
  }
}

// The transport tells that the victim is lost; messages of it that have not
// arrived never will.
void World::notice(int index) {
  Rank& rank = change(index);
  rank.notices_death = false;
  if (index != 0) {
    rank.down.clear();
    const bool untold = fault(Fault::kLossNotToldToOne) && index == 1;
    if (!rank.all_gone && !untold) fail(&rank, job_->victim);
    return;
  }
  Rank& victim = change(job_->victim);
  // The coordinator cannot know that what it held went into a round that had
  // started before it heard of the departure: then it may give the alarm.
  const bool harmless = victim.gone && victim.up.empty() && !owes(job_->victim) &&
                        !ProtocolState::departing(*coordinator_, job_->victim);
  victim.up.clear();
  if (rank.all_gone || fault(Fault::kLossNotHeard)) return;
  if (fault(Fault::kGoodbyeExcusesAll) && victim.gone) return;
  std::vector<Coordinator::Outgoing> out;
  const bool alarm = coordinator_.change().on_peer_lost(job_->victim, "killed", &out);
  expect(!alarm || !harmless, [] { return "I7: a rank that was done is missed"; });
  route(out);
  if (!alarm) return;
  // Whatever the coordinator still says comes behind that, to ranks that have
  // failed by then.
  over_ = true;
  for (int i = 0; i < size_; ++i) change(i).up.clear();
}

// From now on every call on this rank ends with the failure, and its progress
// thread takes part in nothing.
void World::fail(Rank* rank, int lost) {
  expect(died_ && lost == job_->victim,
         [&] { return "I7: a failure names rank " + std::to_string(lost); });
  rank->fate = Fate::kFailed;
  rank->blames = lost;
  rank->down.clear();
}

}  // namespace hvd_partial

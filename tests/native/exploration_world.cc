// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "exploration_world.h"

#include <algorithm>
#include <sstream>
#include <variant>

namespace hvd_partial {
namespace {

const std::vector<double> kWeights{1.0, 0.5, 0.25, 0.125, 0.0625};

std::uint64_t bit(int rank) { return std::uint64_t{1} << rank; }
bool has(std::uint64_t bits, int rank) { return (bits >> rank & 1) != 0; }

std::string name(int rank) { return "rank " + std::to_string(rank); }
std::string name(std::uint64_t round) { return "round " + std::to_string(round); }

// Weights depend on the mode that a rank has heard of last.
bool weights_follow_mode(const Job& job) {
  return full_weights(job.mode) ||
         std::any_of(job.programs.begin(), job.programs.end(), [](const std::string& program) {
           return program.find('y') != std::string::npos;
         });
}

std::string text_of(const Message& message) {
  std::ostringstream text;
  if (const auto* m = std::get_if<Call>(&message)) {
    text << "Call " << m->round << (m->waiting ? " waiting" : "");
  } else if (const auto* m = std::get_if<SetMode>(&message)) {
    text << "SetMode " << to_string(m->mode);
  } else if (const auto* m = std::get_if<Leave>(&message)) {
    text << "Leave" << (m->holds_contribution ? " holding" : "");
  } else if (const auto* m = std::get_if<Members>(&message)) {
    text << "Members " << m->bits.at(0);
  } else if (const auto* m = std::get_if<Activate>(&message)) {
    text << "Activate " << m->round << ' ' << to_string(m->mode) << (m->flush ? " flush" : "");
  } else if (const auto* m = std::get_if<PeerLost>(&message)) {
    text << "PeerLost " << m->peer;
  } else {
    constexpr const char* kNames[] = {"OpenChannel", "Call",    "SetMode",       "Flush",
                                      "Leave",       "Goodbye", "Abort",         "ChannelOpened",
                                      "Rejected",    "Members", "Activate",      "PeerLost",
                                      "Aborted",     "AllGone", "StillTraining", "AllGone"};
    text << kNames[message.index()];
  }
  return text.str();
}

}  // namespace

std::string World::Event::describe() const {
  constexpr const char* kNames[] = {"acts",      "is heard", "hears",   "joins",
                                    "publishes", "dies",     "notices", "the grace ends"};
  const std::string what = kNames[static_cast<std::size_t>(kind)];
  return kind == Kind::kGraceEnds ? what : name(rank) + ' ' + what;
}

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
// Reduction.* in exploration_test.cc checks all this state by state.
std::optional<World::Event> World::urgent() const {
  const bool hears_at_once = !weights_follow_mode(*job_);
  for (int i = 0; i < size_; ++i) {
    const Rank& rank = this->rank(i);
    if (hears_at_once && !rank.down.empty() &&
        (std::holds_alternative<Activate>(rank.down.front()) ||
         std::holds_alternative<Members>(rank.down.front()))) {
      return Event{Event::Kind::kHears, i};
    }
    if (!rank.up.empty() && coordinator_lives()) {
      const auto* call = std::get_if<Call>(&rank.up.front());
      if (call != nullptr && (!call->waiting || call->round < activated())) {
        return Event{Event::Kind::kIsHeard, i};
      }
    }
    if (rank.fate != Fate::kAlive) continue;
    if (rank.phase == Phase::kDepositing && !rank.joined.has_value()) {
      return Event{Event::Kind::kActs, i};
    }
    if (!blocked(rank)) continue;
    if (job_->victim < 0 && may_join(rank)) return Event{Event::Kind::kJoins, i};
    if (may_publish(rank)) return Event{Event::Kind::kPublishes, i};
  }
  return std::nullopt;
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
  if (rank.ring.empty()) rank.applied = std::max(rank.applied, rank.member.published());
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

// All end their flush at the same round: everything before its end has been
// applied, and nothing after it.
void World::check_flushed(int index) {
  const Rank& rank = this->rank(index);
  for (std::uint64_t number = first_; number < activated(); ++number) {
    if (total(number) == 0) continue;
    const bool applied = number < rank.applied;
    const bool due = number < flush_end_;
    expect(applied == due || (job_->latest_only && due),
           [&] { return "I2: the flush of " + name(index) + " ended out of step"; });
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

// What the round waited for is in it.
void World::check_complete(std::uint64_t number) {
  const Round& round = this->round(number);
  int contributors = 0;
  for (int i = 0; i < size_; ++i) contributors += has(round.quorum & round.contributors, i);
  expect(contributors >= round.required, [&] {
    return "I3: " + name(number) + " has contributions of " + std::to_string(contributors) +
           " that waited, not of " + std::to_string(round.required);
  });
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
  if (rank.member.publish(own, round.contributions) && !keeps_oldest) rank.ring.push_back(own.round);
  expect(rank.ring == ProtocolState::ring(rank.member), [&] {
    return "I2: the ring of " + name(index) + " does not hold what it should";
  });
  if (rank.ring.empty() && !rank.member.left()) rank.applied = rank.member.published();
  if (job_->latest_only) {
    expect(rank.ring.size() <= 2, [] { return "I4: more than one being read and a newer one"; });
  } else {
    expect(rank.member.lag() <= job_->max_lag, [&] {
      return "I4: " + name(index) + " lags by " + std::to_string(rank.member.lag());
    });
  }
  forget_rounds();
}

// ---- the coordinator --------------------------------------------------------

void World::deliver_up(int index) {
  Rank& rank = change(index);
  const Message message = std::move(rank.up.front());
  rank.up.erase(rank.up.begin());
  if (const auto* m = std::get_if<Call>(&message)) {
    if (m->waiting) rank.heard_call = static_cast<int>(m->round);
  } else if (const auto* m = std::get_if<SetMode>(&message)) {
    mode_ = m->mode;
  }
  rank.heard_open |= std::holds_alternative<OpenChannel>(message);
  rank.heard_flush |= std::holds_alternative<Flush>(message);
  rank.heard_leave |= std::holds_alternative<Leave>(message);
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
      const bool lost = (fault(Fault::kForgetsAnActivation) && i == 1 && activate != nullptr &&
                         activate->round == 1) ||
                        (fault(Fault::kForgetsTheMembers) && i == 0 && members != nullptr &&
                         members->bits.at(0) != bit(size_) - 1) ||
                        (fault(Fault::kLossNotToldToOne) && i == 1 &&
                         std::holds_alternative<PeerLost>(message));
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

std::vector<int> World::counting() const {
  std::vector<int> found;
  for (int i = 0; i < size_; ++i) {
    if (counts(rank(i))) found.push_back(i);
  }
  return found;
}

// Enough ranks wait for a round that starts, by what they said, and it is the
// mode that was asked for last.
void World::note_activation(const Activate& message) {
  if (message.round < activated()) return;  // the same, to another rank
  Round round;
  round.mode = message.mode;
  round.flush = message.flush;
  round.members = announced_;
  expect(message.mode == mode_, [&] { return "I2: " + name(message.round) + " in a stale mode"; });
  if (message.flush) {
    flush_end_ = message.round + 1;
    expect(counting().empty(), [] { return "I3: a flush ended without a rank that counts"; });
    for (int i = 0; i < size_; ++i) change(i).heard_flush = false;
  } else {
    const std::vector<int> ranks = counting();
    for (const int i : ranks) {
      if (rank(i).asked == static_cast<int>(message.round)) round.quorum |= bit(i);
    }
    int waiting = 0;
    for (const int i : ranks) waiting += has(round.quorum, i);
    round.required = std::min<int>(required_ranks(message.mode, size_), ranks.size());
    expect(waiting >= round.required, [&] {
      return "I3: " + name(message.round) + " started with " + std::to_string(waiting) +
             " waiting of " + std::to_string(round.required);
    });
    if (message.mode.kind == ModeKind::kDesignated) {
      const int initiator = designated_rank(message.mode.seed, message.round, ranks);
      round.quorum &= bit(initiator);
      expect(round.quorum != 0, [&] { return "I3: " + name(message.round) + " without " + name(initiator); });
    }
  }
  rounds_.push_back(round);
}

// A round starts as soon as what it waits for has been heard.
void World::check_progress() {
  if (!coordinator_lives()) return;
  bool flushing = false;
  for (int i = 0; i < size_; ++i) {
    if (!rank(i).heard_open) return;
    flushing |= rank(i).heard_flush && !rank(i).heard_leave;
  }
  const std::vector<int> ranks = counting();
  if (ranks.empty()) {
    expect(!flushing, [] { return "I5: all flush, and it does not end"; });
    return;
  }
  const auto waits = [&](int i) { return rank(i).heard_call == static_cast<int>(activated()); };
  const auto waiting = std::count_if(ranks.begin(), ranks.end(), waits);
  const int required = std::min<int>(required_ranks(mode_, size_), ranks.size());
  const bool quorum = mode_.kind == ModeKind::kDesignated
                          ? waits(designated_rank(mode_.seed, activated(), ranks))
                          : waiting >= required;
  const bool everybody = waiting == static_cast<int>(ranks.size());
  const bool in_grace = coordinator_->next_deadline() != kNever;
  expect(!quorum || (in_grace && !everybody),
         [&] { return "I5: enough wait for " + name(activated()) + ", and it does not start"; });
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
    if (!rank.all_gone && !fault(Fault::kLossNotToldToOne)) fail(&rank, job_->victim);
    return;
  }
  Rank& victim = change(job_->victim);
  const bool harmless = victim.gone && victim.up.empty() && !owes(job_->victim);
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

// Somebody waits for a contribution of this rank, or may do so.
bool World::owes(int index) const {
  return !rank(index).held.empty() ||
         std::any_of(rounds_.begin(), rounds_.end(), [index](const Round& round) {
           return has(round.members & ~round.published, index);
         });
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

// ---- the end ----------------------------------------------------------------

void World::check_end() {
  // What a rank holds when it leaves goes into the next round; if everybody
  // leaves there is none, and nobody to apply it.
  const bool somebody_stays =
      std::any_of(job_->programs.begin(), job_->programs.end(),
                  [](const std::string& program) { return program.back() == 'f'; });
  const bool excused = !died_ || rank(job_->victim).gone;
  for (int i = 0; i < size_; ++i) {
    const Rank& rank = this->rank(i);
    if (rank.fate == Fate::kDead) continue;
    if (rank.fate == Fate::kFailed) continue;  // named the right rank, see fail()
    expect(rank.gone && rank.all_gone, [&] {
      return (died_ ? "I7: " : "I5: ") + name(i) + " waits for ever";
    });
    expect(excused, [&] { return "I7: " + name(i) + " does not hear of a lost rank"; });
    expect(!somebody_stays || (rank.held.empty() && rank.member.held_contributions() == 0),
           [&] { return "I1: a contribution of " + name(i) + " is in no round"; });
  }
}

// A round that everybody has behind him decides nothing any more.
void World::forget_rounds() {
  std::size_t count = 0;
  for (; count < rounds_.size(); ++count) {
    const Round& round = rounds_[count];
    const std::uint64_t number = first_ + count;
    bool needed = false;
    for (int i = 0; i < size_ && !needed; ++i) {
      const Rank& rank = this->rank(i);
      if (rank.fate == Fate::kFailed) continue;
      if (has(round.members & ~round.published, i)) needed = true;  // a dead one owes it
      if (rank.fate == Fate::kAlive && !rank.member.left() && rank.applied <= number) needed = true;
    }
    if (needed) break;
  }
  rounds_.erase(rounds_.begin(), rounds_.begin() + static_cast<std::ptrdiff_t>(count));
  first_ += count;
}

// ---- keys and stories -------------------------------------------------------

// Which rank is written first. With `symmetry` ranks with the same program are
// sorted by what they do: neither the coordinator nor a member compares rank
// numbers, but for the draw of the designated mode. Two that look the same in
// what is compared here stay in order, which costs some of the gain only.
std::vector<int> World::order(bool symmetry) const {
  std::vector<int> order;
  for (int i = 0; i < size_; ++i) order.push_back(i);
  if (!symmetry || job_->mode.kind == ModeKind::kDesignated) return order;
  struct Looks {
    int group;
    std::uint64_t digest;
  };
  std::array<Looks, kMostRanks> looks{};
  for (int i = 0; i < size_; ++i) {
    const Rank& rank = this->rank(i);
    int group = 0;
    // Rank 0 and the victim have a part of their own in a failure.
    const auto special = [this](int r) { return job_->victim >= 0 && (r == 0 || r == job_->victim); };
    while (group != i && (special(i) || special(group) || program(group) != program(i))) ++group;
    std::uint64_t digest = 0;
    const auto add = [&digest](std::uint64_t value) {
      digest = (digest ^ value) * 0x9E3779B97F4A7C15ull;
      digest ^= digest >> 32;
    };
    add(rank.next << 8 | static_cast<std::uint64_t>(rank.phase) << 4 |
        static_cast<std::uint64_t>(rank.fate) << 2 | std::uint64_t{rank.opened} << 1 |
        std::uint64_t{rank.gone});
    add(rank.member.joined() << 32 | rank.member.published() << 16 | rank.applied);
    add(rank.up.size() << 32 | rank.down.size() << 16 | rank.held.size());
    for (const Message& message : rank.up) add(message.index());
    add(static_cast<std::uint64_t>(rank.heard_call + 1) << 8 |
        static_cast<std::uint64_t>(rank.asked + 1));
    add(std::uint64_t{rank.heard_open} | std::uint64_t{rank.heard_flush} << 1 |
        std::uint64_t{rank.heard_leave} << 2);
    for (const Held& held : rank.held) add(held.applied);
    for (const Round& round : rounds_) {
      add(std::uint64_t{has(round.members, i)} | std::uint64_t{has(round.joined, i)} << 1 |
          std::uint64_t{has(round.published, i)} << 2 | std::uint64_t{has(round.quorum, i)} << 3 |
          std::uint64_t{has(round.contributors, i)} << 4);
    }
    looks[static_cast<std::size_t>(i)] = {group, digest};
  }
  std::stable_sort(order.begin(), order.end(), [&looks](int a, int b) {
    const Looks& one = looks[static_cast<std::size_t>(a)];
    const Looks& two = looks[static_cast<std::size_t>(b)];
    return one.group != two.group ? one.group < two.group : one.digest < two.digest;
  });
  return order;
}

namespace {

std::uint64_t moved(std::uint64_t bits, const std::array<int, World::kMostRanks>& place) {
  std::uint64_t result = 0;
  for (int i = 0; i < World::kMostRanks; ++i) {
    if (has(bits, i)) result |= bit(place[static_cast<std::size_t>(i)]);
  }
  return result;
}

}  // namespace

void World::put(const Message& message, const std::array<int, kMostRanks>& place,
                KeyWriter* key) const {
  key->put(message.index());
  if (const auto* m = std::get_if<Call>(&message)) {
    key->put(m->round << 1 | std::uint64_t{m->waiting});
  } else if (const auto* m = std::get_if<SetMode>(&message)) {
    key->put(m->mode);
  } else if (const auto* m = std::get_if<Leave>(&message)) {
    key->put(std::uint64_t{m->holds_contribution});
  } else if (const auto* m = std::get_if<Members>(&message)) {
    key->put(moved(m->bits.at(0), place));
  } else if (const auto* m = std::get_if<Activate>(&message)) {
    key->put(m->round << 1 | std::uint64_t{m->flush});
    key->put(m->mode);
  } else if (const auto* m = std::get_if<PeerLost>(&message)) {
    key->put(static_cast<std::uint64_t>(m->peer));
  }
}

void World::put(const Rank& rank, const std::array<int, kMostRanks>& place, KeyWriter* key) const {
  key->put(static_cast<std::uint64_t>(rank.fate) | std::uint64_t{rank.notices_death} << 2 |
           std::uint64_t{rank.all_gone} << 3 | std::uint64_t{rank.gone} << 4 |
           std::uint64_t{rank.opened} << 5);
  key->put(std::uint64_t{rank.heard_open} | std::uint64_t{rank.heard_flush} << 1 |
           std::uint64_t{rank.heard_leave} << 2 |
           std::uint64_t{rank.heard_call == static_cast<int>(activated())} << 3 |
           std::uint64_t{rank.joined.has_value()} << 4);
  key->put(rank.up.size());
  for (const Message& message : rank.up) put(message, place, key);
  if (rank.fate == Fate::kFailed) return;
  key->put(rank.held.size());
  if (rank.fate == Fate::kDead) return;
  key->put(rank.down.size());
  for (const Message& message : rank.down) put(message, place, key);
  for (const Held& held : rank.held) key->put(held.applied << 1 | std::uint64_t{held.full_weight});
  key->put(static_cast<std::uint64_t>(rank.phase));
  if (rank.phase == Phase::kDepositing) {
    key->put(rank.depositing.applied << 1 | std::uint64_t{rank.depositing.full_weight});
  }
  key->put(rank.next);
  key->put(static_cast<std::uint64_t>(rank.asked + 1));
  key->put(rank.applied);
  key->put(rank.reading.size());
  key->put(rank.known_mode);
  key->put(moved(rank.coming_members, place));
  for (const std::uint64_t bits : rank.activated_members) key->put(moved(bits, place));
  ProtocolState::put(rank.member, rank.phase == Phase::kWaiting, key);
}

Key World::key(bool symmetry) const {
  const std::vector<int> order = this->order(symmetry);
  std::array<int, kMostRanks> place{};
  for (int i = 0; i < size_; ++i) place[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = i;
  KeyWriter key;
  key.put(std::uint64_t{died_} | std::uint64_t{over_} << 1);
  if (coordinator_lives()) {
    ProtocolState::put(*coordinator_, order, &key);
    key.put(mode_);
    key.put(moved(announced_, place));
  }
  for (const int i : order) put(rank(i), place, &key);
  key.put(first_);
  key.put(flush_end_);
  key.put(rounds_.size());
  for (const Round& round : rounds_) {
    key.put(moved(round.members, place));
    key.put(moved(round.published, place));
    key.put(moved(round.joined, place));
    if (round.joined == round.members) {
      key.put(std::uint64_t{round.contributions > 0});
      continue;
    }
    key.put(round.mode);
    key.put(std::uint64_t{round.flush});
    key.put(moved(round.quorum, place));
    key.put(static_cast<std::uint64_t>(round.required));
    key.put(moved(round.contributors, place));
    key.put(std::uint64_t{round.contributions > 0});
  }
  return key.finish();
}

std::string World::describe() const {
  std::ostringstream text;
  text << coordinator_->describe();
  for (int i = 0; i < size_; ++i) {
    const Rank& rank = this->rank(i);
    text << "\nrank " << i << ": ";
    if (rank.fate == Fate::kDead) text << "dead, ";
    if (rank.fate == Fate::kFailed) text << "failed, ";
    constexpr const char* kPhases[] = {"idle", "depositing", "waiting", "flushing", "reading"};
    text << program(i) << " at " << rank.next << ", " << kPhases[static_cast<std::size_t>(rank.phase)]
         << (rank.gone ? ", gone; " : "; ") << rank.member.describe();
    for (const Message& message : rank.up) text << "; ^ " << text_of(message);
    for (const Message& message : rank.down) text << "; v " << text_of(message);
  }
  for (std::size_t i = 0; i < rounds_.size(); ++i) {
    const Round& round = rounds_[i];
    text << "\nround " << first_ + i << ": " << to_string(round.mode)
         << (round.flush ? ", flush" : "") << ", members " << round.members << ", joined "
         << round.joined << ", published " << round.published << ", " << round.contributions
         << " contributions";
  }
  return text.str();
}

}  // namespace hvd_partial

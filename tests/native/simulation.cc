// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "simulation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

namespace hvd_partial {
namespace {

constexpr std::size_t kElements = Ledger::kElements;
constexpr std::size_t kEventsShown = 100;
// The rank that a planted mistake happens to.
constexpr int kPlantRank = 1;

}  // namespace

struct Simulation::Rank {
  enum class Doing {
    kComputing,
    kWaiting,
    kApplying,
    kFlushing,
    kLeaving,
    kDone,
    kFailed,  // has learned that the job is lost
    kDead,
  };
  static constexpr const char* kNames[] = {"computes", "waits", "applies", "flushes",
                                           "leaves",   "done",  "failed",  "dead"};

  int rank = 0;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Progress> progress;
  std::shared_ptr<Channel> channel;
  Doing doing = Doing::kComputing;
  bool due = true;  // something may move now
  bool flush_begun = false;
  bool left = false;
  double until = 0;          // of kComputing, kApplying and kLeaving
  double stopped_until = 0;  // the whole process
  double called_at = 0;      // of kWaiting
  int epoch = 0;
  int step = 0;
  std::uint64_t all_steps = 0;
  int steps_of_epoch = 0;
  int to_apply = 0;
  int results = 0;
  std::uint64_t next_round = 0;  // all rounds before it are applied
};

Simulation::Simulation(const Scenario& scenario)
    : scenario_(scenario),
      trace_(scenario.ranks, scenario.seed, 0, scenario.delays),
      random_(scenario.seed),
      fabric_(scenario.ranks),
      ledger_(scenario_),
      latest_arrival_(scenario.ranks) {
  // Small transfers are over when they are sent, or when the receiver has
  // copied them: both happen with UCX.
  if (scenario_.seed % 2 == 0) fabric_.set_eager_bytes(1 << 20);
  fabric_.set_delay(
      [this](int from, int to, bool control) { return message_delay(from, to, control); });
  std::vector<std::vector<std::uint8_t>> addresses;
  for (int i = 0; i < scenario_.ranks; ++i) {
    auto rank = std::make_unique<Rank>();
    rank->rank = i;
    rank->transport = fabric_.make(i);
    addresses.push_back(rank->transport->address());
    ranks_.push_back(std::move(rank));
  }
  for (auto& rank : ranks_) {
    rank->progress = std::make_unique<Progress>(rank->transport.get(), &clock_);
    if (!rank->transport->connect(addresses).ok()) violate("connect failed");
    open(rank.get());
    begin_step(rank.get());
  }
  if (scenario_.mode_change_seconds > 0) schedule(Chore::kChangeMode);
  if (scenario_.stop_seconds > 0) schedule(Chore::kStop);
  if (scenario_.crash_rank >= 0) schedule(Chore::kCrash);
}

// The transports say goodbye, which nobody will hear.
Simulation::~Simulation() { fabric_.set_delay(nullptr); }

void Simulation::open(Rank* rank) {
  ChannelOptions options;
  options.name = "gradients";
  options.signature = "same";
  options.tensors = {{DType::kFloat64, kElements}};
  options.member.mode = scenario_.mode;
  options.member.max_lag = scenario_.max_lag;
  options.member.latest_only = scenario_.latest_only;
  if (scenario_.weighted) {
    options.member.staleness_weights.clear();
    for (int late = 0; late < 16; ++late) {
      options.member.staleness_weights.push_back(std::ldexp(1.0, -late));
    }
  }
  options.average = Average::kNone;
  options.grace_seconds = scenario_.grace_seconds;
  if (!rank->progress->open_channel(options, &rank->channel).ok()) violate("open failed");
}

// ---- what is reported -------------------------------------------------------

void Simulation::violate(const std::string& what) {
  if (!violation_.empty() || what.empty()) return;
  std::ostringstream text;
  text << what << "\n  at " << clock_.now() << " s of " << scenario_.describe()
       << "\n  replay: " << scenario_.replay_command();
  for (const auto& rank : ranks_) {
    if (rank->channel == nullptr) continue;
    const ChannelStats stats = rank->channel->stats();
    text << "\n  rank " << rank->rank << ' ' << Rank::kNames[static_cast<int>(rank->doing)]
         << ", epoch " << rank->epoch << ", step " << rank->step << " of " << rank->steps_of_epoch
         << ", rounds " << stats.rounds << ", lag " << stats.lag << ", until " << rank->until;
  }
  text << "\n  the last events:\n" << log_.last(kEventsShown);
  violation_ = text.str();
}

void Simulation::log(EventLog::Event event) {
  event.time = clock_.now();
  log_.add(event);
}

void Simulation::log(int rank, const char* what) {
  EventLog::Event event;
  event.rank = rank;
  event.what = what;
  log(event);
}

// ---- time -------------------------------------------------------------------

// Messages of a pair keep their order, which the fabric sees to; those of
// different pairs overtake each other.
double Simulation::message_delay(int from, int to, bool control) {
  double seconds = uniform(0, scenario_.message_seconds);
  if (scenario_.straggler_seconds > 0 && random_() % 16 == 0) {
    seconds = uniform(0, scenario_.straggler_seconds);
  }
  const double arrival = clock_.now() + seconds;
  wake(to, arrival);
  if (control) {
    Arrival& latest = latest_arrival_[to];
    if (arrival < latest.time && from != latest.from) ++overtakings_;
    if (arrival > latest.time) latest = {arrival, from};
  }
  return seconds;
}

void Simulation::wake(int rank, double time) {
  if (time <= clock_.now()) {
    ranks_[rank]->due = true;
  } else {
    wakes_.emplace(time, rank);
  }
}

double Simulation::next_event() const {
  double next = wakes_.empty() ? kNever : wakes_.top().first;
  const Rank& coordinating = *ranks_[0];
  if (coordinating.doing != Rank::Doing::kDead) {
    const double deadline = coordinating.progress->next_deadline();
    next = std::min(next, std::max(deadline, coordinating.stopped_until));
  }
  if (next == kNever) return next;  // chores alone are no reason to go on
  for (const auto& [time, chore] : chores_) next = std::min(next, time);
  return next;
}

void Simulation::schedule(Chore chore) {
  double time = scenario_.crash_seconds;
  if (chore != Chore::kCrash) {
    const double mean =
        chore == Chore::kStop ? 2 * scenario_.stop_seconds : scenario_.mode_change_seconds;
    time = clock_.now() - mean * std::log(uniform(1e-9, 1));
  }
  chores_.emplace_back(time, chore);
}

void Simulation::do_chores() {
  for (std::size_t i = 0; i < chores_.size();) {
    if (chores_[i].first > clock_.now()) {
      ++i;
      continue;
    }
    const Chore chore = chores_[i].second;
    chores_.erase(chores_.begin() + static_cast<std::ptrdiff_t>(i));
    if (chore == Chore::kCrash) {
      crash();
      continue;
    }
    Rank& rank = *ranks_[random_() % ranks_.size()];
    const bool alive = rank.doing != Rank::Doing::kDead && rank.doing != Rank::Doing::kFailed;
    if (chore == Chore::kStop && alive) {
      rank.stopped_until = clock_.now() + uniform(0, scenario_.stop_seconds);
      wake(rank.rank, rank.stopped_until);
      log({0, rank.rank, "is stopped", {}, rank.stopped_until - clock_.now(), {}});
    } else if (chore == Chore::kChangeMode && alive && !rank.left &&
               !rank.progress->failure().failed()) {
      const Mode mode = draw_mode(&random_, scenario_.ranks);
      if (!rank.channel->set_mode(mode).ok()) violate("set_mode failed");
      ++mode_changes_;
      rank.due = true;
      log({0, rank.rank, "asks for a mode", {}, {}, mode});
    }
    schedule(chore);
  }
}

// ---- a rank's user ----------------------------------------------------------

void Simulation::begin_step(Rank* rank) {
  if (rank->step == 0) {
    // Uneven data: ranks make different numbers of steps, perhaps none.
    const int spread = std::min(2, scenario_.steps);
    rank->steps_of_epoch =
        scenario_.steps - spread + static_cast<int>(random_() % (2 * spread + 1));
  }
  if (rank->step == rank->steps_of_epoch) {
    rank->doing = Rank::Doing::kFlushing;
    first_flush_ = std::min(first_flush_, clock_.now());
    log(rank->rank, "flushes");
    if (!rank->channel->begin_flush().ok()) violate("flush refused");
    rank->due = true;
    return;
  }
  rank->doing = Rank::Doing::kComputing;
  const double seconds =
      scenario_.step_seconds * uniform(0.9, 1.1) + trace_.seconds(rank->rank, rank->all_steps++);
  rank->until = clock_.now() + seconds;
  const bool sleeps =
      scenario_.plant == Plant::kSleeper && rank->rank == kPlantRank && rank->all_steps == 3;
  if (sleeps) {
    rank->until = kNever;
  } else {
    wake(rank->rank, rank->until);
  }
  log({0, rank->rank, "computes step", static_cast<std::int64_t>(rank->all_steps), seconds, {}});
}

void Simulation::deposit(Rank* rank) {
  Ledger::Deposit record;
  record.applied = rank->next_round;
  record.full_weight = !scenario_.weighted || full_weights(rank->channel->stats().mode);
  std::vector<double> values(kElements);
  constexpr int kLargest = Ledger::kLargestValue;
  for (double& value : values) {
    value = static_cast<double>(static_cast<std::int64_t>(random_() % (2 * kLargest))) - kLargest;
  }
  const void* tensors[] = {values.data()};
  bool skipped = false;
  if (!rank->channel->deposit(tensors, 0.1, &skipped).ok()) violate("deposit failed");
  ++rank->step;
  rank->doing = Rank::Doing::kWaiting;
  rank->called_at = clock_.now();
  log({0,
       rank->rank,
       "calls allreduce at step",
       static_cast<std::int64_t>(rank->all_steps),
       {},
       {}});
  const bool forgotten = scenario_.plant == Plant::kForgottenDeposit && rank->rank == kPlantRank &&
                         rank->all_steps == 2;
  record.values = std::move(values);
  if (!forgotten) ledger_.add_deposit(rank->rank, std::move(record));
  // One that leaves in the middle of everything: what it holds must not be lost.
  if (leaver(*rank) && scenario_.seed % 2 == 0 && rank->step >= rank->steps_of_epoch / 2) {
    rank->doing = Rank::Doing::kLeaving;
    rank->until = clock_.now() + (random_() % 2) * uniform(0, 4) * scenario_.message_seconds;
    wake(rank->rank, rank->until);
  }
}

bool Simulation::leaver(const Rank& rank) const {
  return scenario_.early_leaver &&
         rank.rank == static_cast<int>(scenario_.seed / 2) % scenario_.ranks;
}

void Simulation::finish(Rank* rank) {
  rank->doing = Rank::Doing::kDone;
  rank->left = true;
  first_flush_ = std::min(first_flush_, clock_.now());
  log(rank->rank, "leaves");
  if (!rank->channel->leave().ok()) violate("leave failed");
}

void Simulation::take_result(Rank* rank) {
  const RoundHeader* found = nullptr;
  std::vector<double> values(kElements);
  void* tensors[] = {values.data()};
  if (!rank->channel->header(0, &found).ok() || !rank->channel->read(0, tensors).ok()) {
    violate("a result that was promised cannot be read");
    return;
  }
  RoundHeader header = *found;
  if (rank->rank == kPlantRank && ++rank->results == 2) {
    if (scenario_.plant == Plant::kOtherSum) values[0] += 1;
    if (scenario_.plant == Plant::kOtherMode) header.mode = {ModeKind::kQuorum, 2};
  }
  if (scenario_.plant == Plant::kShortQuorum && header.round == 1) {
    header.contributors = required_ranks(header.mode, scenario_.ranks) - 1;
  }
  rank->next_round = header.round + 1;
  log({0, rank->rank, "applies round", static_cast<std::int64_t>(header.round), {}, header.mode});
  violate(ledger_.add_result(rank->rank, header, values, clock_.now() < first_flush_));
  if (!rank->channel->release(1).ok()) violate("release failed");
}

bool Simulation::collect(Rank* rank) {
  int available = 0;
  bool flushed = false;
  if (!rank->channel->poll(&available, &flushed)) return false;
  if (rank->doing == Rank::Doing::kWaiting) {
    largest_blocked_ = std::max(largest_blocked_, clock_.now() - rank->called_at);
  }
  const ChannelStats stats = rank->channel->stats();
  const bool lies = scenario_.plant == Plant::kLongLag && rank->rank == kPlantRank;
  const int lag = stats.largest_lag + (lies ? scenario_.max_lag + 1 : 0);
  if (!scenario_.latest_only && lag > scenario_.max_lag) {
    violate("I4: rank " + std::to_string(rank->rank) + " lags by " + std::to_string(lag));
  }
  if (flushed) {
    log(rank->rank, "has flushed");
    // A null round may have ended the flush; the others may have gone on since.
    rank->next_round = stats.rounds - stats.lag;
    rank->step = 0;
    ++rank->epoch;
    if (rank->epoch == scenario_.epochs || leaver(*rank)) {
      finish(rank);
    } else {
      begin_step(rank);
    }
    return true;
  }
  // Applying takes time, during which further rounds may be published.
  rank->to_apply = available;
  rank->flush_begun = rank->doing == Rank::Doing::kFlushing;
  rank->doing = Rank::Doing::kApplying;
  rank->until = clock_.now() + uniform(0, 0.1) * scenario_.step_seconds;
  wake(rank->rank, rank->until);
  log({0, rank->rank, "gets results:", available, {}, {}});
  return true;
}

bool Simulation::act(Rank* rank) {
  switch (rank->doing) {
    case Rank::Doing::kComputing:
      if (clock_.now() < rank->until) return false;
      deposit(rank);
      return true;
    case Rank::Doing::kWaiting:
    case Rank::Doing::kFlushing:
      return collect(rank);
    case Rank::Doing::kApplying:
      if (clock_.now() < rank->until) return false;
      for (; rank->to_apply > 0; --rank->to_apply) take_result(rank);
      if (rank->flush_begun) {
        rank->doing = Rank::Doing::kFlushing;
      } else {
        begin_step(rank);
      }
      return true;
    case Rank::Doing::kLeaving:
      if (clock_.now() < rank->until) return false;
      finish(rank);
      return true;
    case Rank::Doing::kDone:
    case Rank::Doing::kFailed:
    case Rank::Doing::kDead:
      return false;
  }
  return false;
}

bool Simulation::turn(Rank* rank) {
  if (rank->doing == Rank::Doing::kDead || clock_.now() < rank->stopped_until) return false;
  const bool deaf = scenario_.plant == Plant::kDeafSurvivor && crashed_ && rank->rank == kPlantRank;
  if (deaf) return false;
  bool moved = rank->progress->step();
  if (rank->doing != Rank::Doing::kFailed && rank->progress->failure().failed()) {
    meet_failure(rank);
    moved = true;
  }
  return act(rank) || moved;
}

// ---- death ------------------------------------------------------------------

void Simulation::crash() {
  crashed_ = true;
  Rank& victim = *ranks_[scenario_.crash_rank];
  victim.doing = Rank::Doing::kDead;
  log(victim.rank, "dies");
  // Control connections exist between rank 0 and every other rank.
  std::vector<int> witnesses{0};
  if (victim.rank == 0) {
    witnesses.resize(ranks_.size());
    std::iota(witnesses.begin(), witnesses.end(), 0);
  }
  fabric_.kill(victim.rank, scenario_.notice_seconds, witnesses);
  for (const int witness : witnesses) wake(witness, clock_.now() + scenario_.notice_seconds);
}

// I7, as the user of this rank meets it.
void Simulation::meet_failure(Rank* rank) {
  const int culprit = scenario_.crash_rank + (scenario_.plant == Plant::kOtherCulprit ? 1 : 0);
  const std::string me = "rank " + std::to_string(rank->rank);
  const std::string lost = "rank " + std::to_string(culprit) + " was lost";
  log(rank->rank, "learns that the job is lost");
  Status status = rank->progress->failure().status();
  if (!crashed_) return violate("I7: " + me + " fails without a reason: " + status.message());
  if (!rank->left) {
    int available = 0;
    bool flushed = false;
    status = rank->channel->wait(0, &available, &flushed);
    if (status.message().rfind(me + ", channel 'gradients', round ", 0) != 0) {
      violate("I7: " + me + " does not say where it failed: " + status.message());
    }
  }
  rank->doing = Rank::Doing::kFailed;
  if (status.code() != ErrorCode::kPeerLost || status.message().find(lost) == std::string::npos) {
    violate("I7: " + me + " does not say that " + lost + ", but: " + status.message());
  }
}

// ---- the whole --------------------------------------------------------------

bool Simulation::over() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [this](const auto& rank) {
    if (rank->doing == Rank::Doing::kDead || rank->doing == Rank::Doing::kFailed) return true;
    return !crashed_ && rank->doing == Rank::Doing::kDone;
  });
}

void Simulation::end() {
  std::vector<bool> stayed;
  for (const auto& rank : ranks_) stayed.push_back(rank->epoch == scenario_.epochs);
  violate(ledger_.check_sums(crashed_, stayed));
}

std::string Simulation::run() {
  constexpr int kMostEvents = 2000000;
  // News of a death go to rank 0, and from there to the others; either may be
  // stopped meanwhile.
  const double longest_news = scenario_.notice_seconds + 2 * scenario_.longest_message_seconds() +
                              2 * scenario_.stop_seconds;
  for (int event = 0; event < kMostEvents && violation_.empty(); ++event) {
    bool moved = true;
    while (moved && violation_.empty()) {
      moved = false;
      // In another order each time: nothing may depend on it.
      const std::size_t first = random_() % ranks_.size();
      for (std::size_t i = 0; i < ranks_.size() && violation_.empty(); ++i) {
        Rank& rank = *ranks_[(first + i) % ranks_.size()];
        if (!rank.due) continue;
        rank.due = turn(&rank);
        moved |= rank.due;
      }
    }
    if (!violation_.empty()) break;
    if (over() && (crashed_ || fabric_.next_delivery() == kNever)) {
      end();
      return violation_;
    }
    if (crashed_ && clock_.now() > scenario_.crash_seconds + longest_news) {
      for (const auto& rank : ranks_) {
        if (rank->doing == Rank::Doing::kDead || rank->doing == Rank::Doing::kFailed) continue;
        violate("I7: rank " + std::to_string(rank->rank) +
                " has not learned of the death of rank " + std::to_string(scenario_.crash_rank));
      }
      break;
    }
    const double next = next_event();
    if (next == kNever) {
      violate(crashed_ ? "I7: a rank will never learn of the death of rank " +
                             std::to_string(scenario_.crash_rank)
                       : "I5: nothing will ever happen again");
      break;
    }
    clock_.set(std::max(next, clock_.now()));
    fabric_.set_time(clock_.now());
    for (; !wakes_.empty() && wakes_.top().first <= clock_.now(); wakes_.pop()) {
      ranks_[wakes_.top().second]->due = true;
    }
    if (ranks_[0]->progress->next_deadline() <= clock_.now()) ranks_[0]->due = true;
    do_chores();
  }
  if (violation_.empty()) violate("I5: no end in sight");
  return violation_;
}

}  // namespace hvd_partial

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

}  // namespace

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
    rank->progress->set_leave_out_seconds(scenario_.leave_out_seconds);
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
         << ", rounds " << stats.rounds << ", lag " << stats.lag << ", until " << rank->until
         << "\n    " << rank->channel->condition().member;
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
  for (const auto& rank : ranks_) {
    if (rank->doing == Rank::Doing::kDead) continue;
    const double deadline = rank->progress->next_deadline();
    if (deadline < kNever) next = std::min(next, std::max(deadline, rank->stopped_until));
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

// ---- ranks ------------------------------------------------------------------

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
  for (const auto& rank : ranks_) {
    const ChannelStats stats = rank->channel->stats();
    made_without_ += stats.made_without;
    deferred_ += stats.deferred;
  }
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
    const double next = next_event();
    const bool news_are_late = crashed_ && clock_.now() > scenario_.crash_seconds + longest_news;
    if (crashed_ && (news_are_late || next == kNever)) {
      for (const auto& rank : ranks_) {
        if (rank->doing == Rank::Doing::kDead || rank->doing == Rank::Doing::kFailed) continue;
        violate("I7: rank " + std::to_string(rank->rank) +
                " has not learned of the death of rank " + std::to_string(scenario_.crash_rank));
      }
      break;
    }
    if (next == kNever) {
      violate("I5: nothing will ever happen again");
      break;
    }
    clock_.set(std::max(next, clock_.now()));
    fabric_.set_time(clock_.now());
    for (; !wakes_.empty() && wakes_.top().first <= clock_.now(); wakes_.pop()) {
      ranks_[wakes_.top().second]->due = true;
    }
    for (auto& rank : ranks_) rank->due |= rank->progress->next_deadline() <= clock_.now();
    do_chores();
  }
  if (violation_.empty()) violate("I5: no end in sight");
  return violation_;
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "simulation.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace hvd_partial {
namespace {

// Values are small integers, weights are powers of two: all sums are exact in
// float64, in whatever order they are made, so that nothing is "about right".
constexpr int kLargestValue = 64;
constexpr std::size_t kElements = 5;

Mode draw_mode(std::mt19937_64* random, int ranks) {
  switch ((*random)() % 6) {
    case 0:
      return {ModeKind::kSync};
    case 1:
      return {ModeKind::kMajority};
    case 2:
      return {ModeKind::kSolo};
    case 3:
      return {ModeKind::kQuorum, static_cast<std::int32_t>(1 + (*random)() % ranks)};
    case 4:
      return {ModeKind::kDesignated, 0, (*random)()};
    default:
      return {ModeKind::kAsync};
  }
}

}  // namespace

Scenario Scenario::draw(std::uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 17);
  Scenario scenario;
  scenario.seed = seed;
  scenario.ranks = 2 + random() % 8;
  scenario.mode = draw_mode(&random, scenario.ranks);
  scenario.mode_changes = random() % 3 == 0;
  scenario.latest_only = random() % 5 == 0;
  scenario.weighted = random() % 2 == 0;
  scenario.early_leaver = random() % 4 == 0;
  scenario.exclusions = seed % 5 == 0;
  scenario.max_lag = 1 + random() % 8;
  scenario.epochs = 1 + random() % 3;
  scenario.steps = 1 + random() % 10;
  scenario.delay_seconds = random() % 4 == 0 ? 2.0 : 0.3;
  scenario.message_seconds = random() % 3 == 0 ? 0.05 : 0.001;
  scenario.grace_seconds = random() % 2 == 0 ? -1 : 0.01 * (random() % 4);
  return scenario;
}

Mode Scenario::decided_after(std::uint64_t round) const {
  std::mt19937_64 random(seed * 1000003 + round);
  return random() % 2 == 0 ? Mode{ModeKind::kSync} : Mode{ModeKind::kQuorum, ranks};
}

std::string Scenario::describe() const {
  std::ostringstream text;
  text << "seed " << seed << ": " << ranks << " ranks, " << to_string(mode)
       << (mode_changes ? ", mode changes" : "") << (decisions ? ", decisions" : "")
       << (exclusions ? ", exclusions" : "") << (latest_only ? ", latest" : ", replay")
       << (weighted ? ", weighted" : "") << (early_leaver ? ", one leaves early" : "")
       << ", max_lag " << max_lag << ", " << epochs << " epochs of about " << steps
       << " steps, delays to " << delay_seconds << " s, messages to " << message_seconds
       << " s, grace " << grace_seconds;
  return text.str();
}

struct Simulation::Rank {
  enum class Doing { kComputing, kWaiting, kApplying, kFlushing, kLeaving, kDone };

  int rank = 0;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Progress> progress;
  std::shared_ptr<Channel> channel;
  Doing doing = Doing::kComputing;
  bool flush_begun = false;
  double until = 0;      // of kComputing and kApplying
  double called_at = 0;  // of kWaiting
  int epoch = 0;
  int step = 0;
  int steps_of_epoch = 0;
  int to_apply = 0;
  std::uint64_t next_round = 0;     // all rounds before it are applied
  std::vector<Deposit> deposits;    // all, in order
  std::vector<double> applied;      // sum over all results
  std::uint64_t contributions = 0;  // in them
};

Simulation::Simulation(const Scenario& scenario)
    : scenario_(scenario), random_(scenario.seed), fabric_(scenario.ranks) {
  // Small transfers are over when they are sent, or when the receiver has
  // copied them: both happen with UCX.
  if (scenario_.seed % 2 == 0) fabric_.set_eager_bytes(1 << 20);
  fabric_.set_delay([this](int, int, bool) { return uniform(0, scenario_.message_seconds); });
  for (int i = 0; i < scenario_.ranks; ++i) {
    auto rank = std::make_unique<Rank>();
    rank->rank = i;
    rank->applied.assign(kElements, 0);
    rank->transport = fabric_.make(i);
    ranks_.push_back(std::move(rank));
  }
  std::vector<std::vector<std::uint8_t>> addresses;
  for (auto& rank : ranks_) addresses.push_back(rank->transport->address());
  for (auto& rank : ranks_) {
    rank->progress = std::make_unique<Progress>(rank->transport.get(), &clock_);
    if (!rank->transport->connect(addresses).ok()) violate("connect failed");
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
    begin_step(rank.get());
  }
}

Simulation::~Simulation() = default;

void Simulation::violate(const std::string& what) {
  if (!violation_.empty()) return;
  std::ostringstream text;
  text << what << " (at " << clock_.now() << " s; " << scenario_.describe() << ")";
  for (const auto& rank : ranks_) {
    const ChannelStats stats = rank->channel->stats();
    text << "\n  rank " << rank->rank << ": doing " << static_cast<int>(rank->doing) << ", epoch "
         << rank->epoch << ", step " << rank->step << " of " << rank->steps_of_epoch << ", rounds "
         << stats.rounds << ", lag " << stats.lag << ", until " << rank->until;
  }
  violation_ = text.str();
}

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
    if (!rank->channel->begin_flush().ok()) violate("flush refused");
    return;
  }
  double seconds = scenario_.step_seconds * uniform(0.9, 1.1);
  if (random_() % scenario_.ranks == 0) seconds += uniform(0, scenario_.delay_seconds);
  rank->doing = Rank::Doing::kComputing;
  rank->until = clock_.now() + seconds;
}

void Simulation::deposit(Rank* rank) {
  if (scenario_.mode_changes && random_() % 8 == 0) {
    if (!rank->channel->set_mode(draw_mode(&random_, scenario_.ranks)).ok()) violate("set_mode");
  }
  if (scenario_.exclusions && random_() % 8 == 0) {
    std::vector<int> excluded;
    for (int other = 0; other < scenario_.ranks; ++other) {
      if (random_() % 3 == 0) excluded.push_back(other);
    }
    if (static_cast<int>(excluded.size()) == scenario_.ranks) excluded.pop_back();
    if (!rank->channel->exclude(excluded, /*drop=*/false).ok()) violate("exclude");
  }
  Deposit record;
  record.applied = rank->next_round;
  record.full_weight = !scenario_.weighted || full_weights(rank->channel->stats().mode);
  std::vector<double> values(kElements);
  for (double& value : values) {
    value = static_cast<double>(static_cast<std::int64_t>(random_() % (2 * kLargestValue))) -
            kLargestValue;
  }
  const void* tensors[] = {values.data()};
  bool skipped = false;
  if (!rank->channel->deposit(tensors, 0.1, &skipped).ok()) violate("deposit failed");
  ++deposits_;
  ++rank->step;
  rank->doing = Rank::Doing::kWaiting;
  rank->called_at = clock_.now();

  record.values = std::move(values);
  rank->deposits.push_back(std::move(record));
  // One that leaves in the middle of everything: what it holds must not be lost.
  if (leaver(*rank) && scenario_.seed % 2 == 0 && rank->step >= rank->steps_of_epoch / 2) {
    rank->doing = Rank::Doing::kLeaving;
    rank->until = clock_.now() + (random_() % 2) * uniform(0, 4) * scenario_.message_seconds;
  }
}

bool Simulation::leaver(const Rank& rank) const {
  return scenario_.early_leaver &&
         rank.rank == static_cast<int>(scenario_.seed / 2) % scenario_.ranks;
}

void Simulation::finish(Rank* rank) {
  rank->doing = Rank::Doing::kDone;
  first_flush_ = std::min(first_flush_, clock_.now());
  if (!rank->channel->leave().ok()) violate("leave failed");
}

void Simulation::check_round(const Rank& rank, const RoundHeader& header,
                             const std::vector<double>& values) {
  RoundRecord record;
  record.values = values;
  record.weight = header.weight;
  record.contributions_of = header.contributions_of;
  record.mode = header.mode;
  const auto [known, first] = rounds_.emplace(header.round, record);
  if (!first) {  // I2
    const RoundRecord& other = known->second;
    if (other.values != record.values || other.weight != record.weight ||
        other.contributions_of != record.contributions_of || other.mode != record.mode) {
      violate("I2: rank " + std::to_string(rank.rank) + " sees another round " +
              std::to_string(header.round));
    }
    return;
  }
  if (scenario_.decisions && header.round > 0 &&
      header.mode != scenario_.decided_after(header.round - 1)) {
    violate("round " + std::to_string(header.round) + " is not in the mode decided after the last");
  }
  if (clock_.now() < first_flush_ &&
      !scenario_.exclusions) {  // I3; afterwards ranks may have stopped counting
    const int required = required_ranks(record.mode, scenario_.ranks);
    if (header.contributors < required) {
      violate("I3: round " + std::to_string(header.round) + " in mode " + to_string(record.mode) +
              " has " + std::to_string(header.contributors) + " contributors");
    }
  }
}

void Simulation::take_result(Rank* rank) {
  const RoundHeader* header = nullptr;
  std::vector<double> values(kElements);
  void* tensors[] = {values.data()};
  if (!rank->channel->header(0, &header).ok() || !rank->channel->read(0, tensors).ok()) {
    violate("a result that was promised cannot be read");
    return;
  }
  // Replay: every round that is not null, in order.
  if (header->round < rank->next_round) violate("I2: results out of order");
  rank->next_round = header->round + 1;
  check_round(*rank, *header, values);
  for (std::size_t i = 0; i < kElements; ++i) rank->applied[i] += values[i];
  rank->contributions += header->contributions;
  if (!scenario_.latest_only && header->total_contributions != rank->contributions) {
    violate("contributions do not add up on rank " + std::to_string(rank->rank));
  }
  const std::uint64_t round = header->round;
  if (!rank->channel->release(1).ok()) violate("release failed");
  if (scenario_.decisions &&
      !rank->channel->decide(round + 1, scenario_.decided_after(round), {}, false).ok()) {
    violate("decide");
  }
}

bool Simulation::collect(Rank* rank) {
  int available = 0;
  bool flushed = false;
  if (!rank->channel->poll(&available, &flushed)) return false;
  if (rank->doing == Rank::Doing::kWaiting) {
    largest_blocked_ = std::max(largest_blocked_, clock_.now() - rank->called_at);
  }
  if (flushed) {
    rank->next_round = rank->channel->stats().rounds;  // a null round may have ended the flush
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
      return false;
  }
  return false;
}

bool Simulation::step_engines() {
  bool moved = false;
  for (auto& rank : ranks_) moved |= rank->progress->step();
  for (auto& rank : ranks_) {
    const ChannelStats stats = rank->channel->stats();  // I4
    if (!scenario_.latest_only && stats.largest_lag > scenario_.max_lag) {
      violate("I4: rank " + std::to_string(rank->rank) + " lags by " +
              std::to_string(stats.largest_lag));
    }
    if (rank->progress->failure().failed()) {
      violate("I7: " + rank->progress->failure().status().message());
    }
  }
  return moved;
}

double Simulation::next_event() const {
  double next = fabric_.next_delivery();
  for (const auto& rank : ranks_) {
    next = std::min(next, rank->progress->next_deadline());
    const bool timed = rank->doing == Rank::Doing::kComputing ||
                       rank->doing == Rank::Doing::kApplying ||
                       rank->doing == Rank::Doing::kLeaving;
    if (timed) {
      next = std::min(next, rank->until);
    }
  }
  return next;
}

// I1, and the staleness rule: round by round, the sum is that of the deposits
// which each contributor had not given before, weighted by how late they came.
void Simulation::check_sums() {
  std::vector<std::size_t> taken(ranks_.size(), 0);
  std::vector<double> total(kElements, 0);
  for (const auto& [number, round] : rounds_) {
    std::vector<double> expected(kElements, 0);
    double expected_weight = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (int c = 0; c < round.contributions_of[i]; ++c) {
        if (taken[i] == ranks_[i]->deposits.size()) return violate("I1: contributed twice");
        const Deposit& deposit = ranks_[i]->deposits[taken[i]++];
        const int late = static_cast<int>(number - deposit.applied);
        if (!scenario_.latest_only && late > scenario_.max_lag + 1) {
          return violate("I4: a contribution is " + std::to_string(late) + " rounds late");
        }
        const double weight = deposit.full_weight ? 1 : std::ldexp(1.0, -std::min(late, 15));
        expected_weight += weight;
        for (std::size_t e = 0; e < kElements; ++e) expected[e] += weight * deposit.values[e];
      }
    }
    if (round.values != expected || round.weight != expected_weight) {
      return violate("I1: round " + std::to_string(number) + " is not the sum of its deposits");
    }
    for (std::size_t e = 0; e < kElements; ++e) total[e] += expected[e];
  }
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (taken[i] != ranks_[i]->deposits.size()) {
      return violate("I1: deposits of rank " + std::to_string(i) + " are lost");
    }
    const bool stayed = ranks_[i]->epoch == scenario_.epochs;
    if (stayed && !scenario_.latest_only && ranks_[i]->applied != total) {
      return violate("I1: rank " + std::to_string(i) + " has applied another sum");
    }
  }
}

std::string Simulation::run() {
  constexpr int kMostEvents = 2000000;
  for (int event = 0; event < kMostEvents && violation_.empty(); ++event) {
    bool moved = true;
    while (moved && violation_.empty()) {
      moved = step_engines();
      // In another order each time: nothing may depend on it.
      const std::size_t first = random_() % ranks_.size();
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        moved |= act(ranks_[(first + i) % ranks_.size()].get());
      }
    }
    const bool finished = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      return rank->doing == Rank::Doing::kDone;
    });
    const double next = next_event();
    if (finished && next == kNever) {
      check_sums();
      return violation_;
    }
    if (next == kNever) {
      violate("I5: nothing will ever happen again");
      break;
    }
    clock_.set(std::max(next, clock_.now()));
    fabric_.set_time(clock_.now());
  }
  if (violation_.empty()) violate("I5: no end in sight");
  return violation_;
}

}  // namespace hvd_partial

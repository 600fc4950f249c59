// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What the user's thread of a simulated rank does.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "simulation.h"

namespace hvd_partial {

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
  if (scenario_.exclusions && random_() % 8 == 0) {
    std::vector<int> excluded;
    for (int other = 0; other < scenario_.ranks; ++other) {
      if (random_() % 3 == 0) excluded.push_back(other);
    }
    if (static_cast<int>(excluded.size()) == scenario_.ranks) excluded.pop_back();
    if (!rank->channel->exclude(excluded, /*drop=*/false).ok()) violate("exclude failed");
  }
  Ledger::Deposit record;
  const ChannelStats stats = rank->channel->stats();
  record.applied = stats.rounds - stats.lag;
  record.seen = rank->next_round;
  record.full_weight = !scenario_.weighted || full_weights(stats.mode);
  std::vector<double> values(Ledger::kElements);
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
  std::vector<double> values(Ledger::kElements);
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
  if (scenario_.decisions &&
      !rank->channel
           ->decide(header.round + 1, scenario_.decided_after(header.round), {}, /*drop=*/false)
           .ok()) {
    violate("decide failed");
  }
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

}  // namespace hvd_partial

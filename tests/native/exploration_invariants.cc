// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What the world expects of what it sees: see docs/design.md, Invariants.

#include <algorithm>

#include "exploration_world.h"

namespace hvd_partial {

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

std::vector<int> World::counting() const {
  std::vector<int> found;
  for (int i = 0; i < size_; ++i) {
    if (counts(rank(i))) found.push_back(i);
  }
  return found;
}

// Enough ranks wait for a round that starts, and have said so, and it is in the
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
      const int number = static_cast<int>(message.round);
      if (rank(i).asked == number && rank(i).heard_call == number) round.quorum |= bit(i);
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
      expect(round.quorum != 0,
             [&] { return "I3: " + name(message.round) + " without " + name(initiator); });
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
    expect(rank.gone && rank.all_gone,
           [&] { return (died_ ? "I7: " : "I5: ") + name(i) + " waits for ever"; });
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

// Somebody waits for a contribution of this rank, or may do so.
bool World::owes(int index) const {
  return !rank(index).held.empty() ||
         std::any_of(rounds_.begin(), rounds_.end(), [index](const Round& round) {
           return has(round.members & ~round.published, index);
         });
}

}  // namespace hvd_partial

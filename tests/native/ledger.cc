// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "ledger.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hvd_partial {

Ledger::Ledger(const Scenario& scenario)
    : scenario_(scenario), deposits_(scenario.ranks), seen_(scenario.ranks) {
  for (Seen& seen : seen_) seen.sum.assign(kElements, 0);
}

std::string Ledger::check_quorum(const RoundHeader& header) const {
  const std::string round =
      "I3: round " + std::to_string(header.round) + " in mode " + to_string(header.mode);
  // The quorum was that of another round, perhaps of another mode.
  if (header.given_to != header.round) return {};
  if (header.contributors < required_ranks(header.mode, scenario_.ranks)) {
    return round + " has " + std::to_string(header.contributors) + " contributors";
  }
  // A rank that was left out is not drawn.
  if (header.mode.kind == ModeKind::kDesignated && scenario_.leave_out_seconds == 0) {
    std::vector<int> candidates(scenario_.ranks);
    std::iota(candidates.begin(), candidates.end(), 0);
    const int designated = designated_rank(header.mode.seed, header.round, candidates);
    if (header.contributions_of[designated] == 0) {
      return round + " goes without rank " + std::to_string(designated);
    }
  }
  return {};
}

std::string Ledger::add_result(int rank, const RoundHeader& header,
                               const std::vector<double>& values, bool all_count) {
  const std::string who = "rank " + std::to_string(rank);
  const std::string which = "round " + std::to_string(header.round);
  Seen& seen = seen_[rank];
  if (!seen.modes.empty() && seen.modes.back().first >= header.round) {
    return "I2: " + who + " gets " + which + " after round " +
           std::to_string(seen.modes.back().first);
  }
  seen.modes.emplace_back(header.round, header.mode);
  for (std::size_t i = 0; i < kElements; ++i) seen.sum[i] += values[i];
  seen.contributions += header.contributions;
  if (!scenario_.latest_only && header.total_contributions != seen.contributions) {
    return "I2: contributions do not add up on " + who + " in " + which;
  }
  const Round round{values, header.weight, header.contributions_of, header.mode, header.given_to};
  const auto [known, first] = rounds_.emplace(header.round, round);
  if (first) {
    if (scenario_.decisions && header.round > 0 &&
        header.mode != scenario_.decided_after(header.round - 1)) {
      return which + " is not in the mode that was decided after the last one";
    }
    // Who is excluded when a round starts, the header does not say.
    return all_count && !scenario_.exclusions ? check_quorum(header) : "";
  }
  const Round& other = known->second;
  if (other.values != round.values || other.weight != round.weight ||
      other.contributions_of != round.contributions_of || other.mode != round.mode ||
      other.given_to != round.given_to) {
    return "I2: " + who + " sees another " + which;
  }
  return {};
}

bool Ledger::has_result(std::uint64_t first, std::uint64_t last) const {
  const auto found = rounds_.lower_bound(first);
  return found != rounds_.end() && found->first < last;
}

// Round by round, the sum is that of the deposits which each contributor had
// not given before, weighted by how late they came.
std::string Ledger::check_sums(bool crashed, const std::vector<bool>& stayed) const {
  std::vector<std::size_t> taken(deposits_.size(), 0);
  std::vector<double> total(kElements, 0);
  for (std::size_t i = 0; i < deposits_.size() && !scenario_.latest_only; ++i) {
    for (const Deposit& deposit : deposits_[i]) {
      if (has_result(deposit.seen, deposit.applied)) {
        return "I2: rank " + std::to_string(i) +
               " says that it has applied a result before round " +
               std::to_string(deposit.applied) + " that it was never given";
      }
    }
  }
  // What was given to a round that was deferred until the crash is in none.
  if (crashed && scenario_.leave_out_seconds > 0) return {};
  // In the order in which contributions were given.
  std::map<std::pair<std::uint64_t, std::uint64_t>, const Round*> given_to;
  for (const auto& [number, round] : rounds_) given_to[{round.given_to, number}] = &round;
  for (const auto& [order, found] : given_to) {
    const Round& round = *found;
    const std::uint64_t number = order.first;
    std::vector<double> expected(kElements, 0);
    double expected_weight = 0;
    std::string given;  // for people
    for (std::size_t i = 0; i < deposits_.size(); ++i) {
      for (int c = 0; c < round.contributions_of[i]; ++c) {
        if (taken[i] == deposits_[i].size()) {
          return "I1: rank " + std::to_string(i) + " has contributed more than it deposited";
        }
        const Deposit& deposit = deposits_[i][taken[i]++];
        const int late = static_cast<int>(number - deposit.applied);
        if (!scenario_.latest_only && late > scenario_.max_lag + 1) {
          return "I4: a contribution is " + std::to_string(late) + " rounds late";
        }
        const double weight = deposit.full_weight ? 1 : std::ldexp(1.0, -std::min(late, 15));
        expected_weight += weight;
        given += " rank " + std::to_string(i) + " one late by " + std::to_string(late) +
                 " with weight " + std::to_string(weight);
        for (std::size_t e = 0; e < kElements; ++e) expected[e] += weight * deposit.values[e];
      }
    }
    if (round.values != expected || round.weight != expected_weight) {
      return "I1: round " + std::to_string(number) + " is not the sum of its deposits:" + given +
             "; in all " + std::to_string(expected_weight) + ", the header says " +
             std::to_string(round.weight);
    }
    for (std::size_t e = 0; e < kElements; ++e) total[e] += expected[e];
  }
  if (crashed) return {};
  for (std::size_t i = 0; i < deposits_.size(); ++i) {
    if (taken[i] != deposits_[i].size()) {
      return "I1: deposits of rank " + std::to_string(i) + " are lost";
    }
    if (stayed[i] && !scenario_.latest_only && seen_[i].sum != total) {
      return "I1: rank " + std::to_string(i) + " has applied another sum";
    }
  }
  return {};
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_LEDGER_H_
#define HVD_PARTIAL_TESTS_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/round_header.h"
#include "scenario.h"

namespace hvd_partial {

// Keeps the books of a simulated job: what each rank deposited, what each has
// seen of each round. Says what is wrong with them, or "".
class Ledger {
 public:
  // Values are small integers, weights are powers of two: all sums are exact
  // in float64, in whatever order they are made; nothing is "about right".
  static constexpr int kLargestValue = 64;
  static constexpr std::size_t kElements = 5;

  struct Deposit {
    std::uint64_t applied = 0;  // rounds that the weights had seen, or that had no result
    std::uint64_t seen = 0;     // the rank had been given the results of all before it
    bool full_weight = false;
    std::vector<double> values;
  };

  explicit Ledger(const Scenario& scenario);

  void add_deposit(int rank, Deposit deposit) {
    deposits_[rank].push_back(std::move(deposit));
    ++deposit_count_;
  }
  // I2 and I3; the latter only while `all_count`: no rank has flushed or left.
  std::string add_result(int rank, const RoundHeader& header, const std::vector<double>& values,
                         bool all_count);
  // I1, and the rule of staleness. A job that a crash ended may have
  // deposits which are in no round.
  std::string check_sums(bool crashed, const std::vector<bool>& stayed) const;

  std::size_t rounds() const { return rounds_.size(); }
  std::uint64_t deposits() const { return deposit_count_; }
  // The rounds that a rank has applied, in order, and their modes.
  const std::vector<std::pair<std::uint64_t, Mode>>& modes_of(int rank) const {
    return seen_[rank].modes;
  }

 private:
  struct Round {
    std::vector<double> values;
    double weight = 0;
    std::vector<std::int32_t> contributions_of;
    Mode mode;
    std::uint64_t given_to = 0;  // see RoundHeader
  };
  struct Seen {
    std::uint64_t contributions = 0;  // in all results
    std::vector<double> sum;          // of them
    std::vector<std::pair<std::uint64_t, Mode>> modes;
  };

  std::string check_quorum(const RoundHeader& header) const;
  bool has_result(std::uint64_t first, std::uint64_t last) const;

  const Scenario& scenario_;
  std::vector<std::vector<Deposit>> deposits_;  // by rank, in order
  std::vector<Seen> seen_;                      // by rank
  std::map<std::uint64_t, Round> rounds_;
  std::uint64_t deposit_count_ = 0;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_LEDGER_H_

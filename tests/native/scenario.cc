// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "scenario.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

namespace hvd_partial {
namespace {

// Most jobs are small: there is more to see in many of them than in few large ones.
int draw_ranks(std::mt19937_64* random) {
  const auto size = (*random)() % 100;
  if (size < 90) return 2 + static_cast<int>((*random)() % 8);
  if (size < 97) return 10 + static_cast<int>((*random)() % 15);
  return 25 + static_cast<int>((*random)() % 40);
}

DelaySource draw_delay(std::mt19937_64* random, int ranks) {
  const double longest = (*random)() % 4 == 0 ? 2.0 : 0.3;
  const auto rank = static_cast<double>((*random)() % ranks);
  switch ((*random)() % 7) {
    case 0:
      return {DelaySource::Kind::kConstant, longest / 3, 0};
    case 1:
      return {DelaySource::Kind::kLogNormal, longest / 6, 1};
    case 2:
      return {DelaySource::Kind::kPareto, longest / 30, 1.2};
    case 3:
      return {DelaySource::Kind::kOneSlow, rank, longest};
    case 4:
      return {DelaySource::Kind::kOneRandom, longest, 0};
    case 5:
      return {DelaySource::Kind::kRotating, longest / 8, longest};
    default:
      return {DelaySource::Kind::kPauses, 1.0 / ranks, longest};
  }
}

}  // namespace

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

Scenario Scenario::draw(std::uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 17);
  const auto uniform = [&random](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Scenario scenario;
  scenario.seed = seed;
  scenario.ranks = draw_ranks(&random);
  scenario.mode = draw_mode(&random, scenario.ranks);
  scenario.latest_only = random() % 5 == 0;
  scenario.weighted = random() % 2 == 0;
  scenario.early_leaver = random() % 4 == 0;
  scenario.exclusions = random() % 5 == 0;
  scenario.max_lag = 1 + random() % 8;
  const bool large = scenario.ranks > 24;
  scenario.epochs = 1 + random() % (large ? 1 : 3);
  scenario.steps = 1 + random() % (large ? 4 : 10);
  scenario.delays = {draw_delay(&random, scenario.ranks)};
  if (random() % 4 == 0) scenario.delays.push_back(draw_delay(&random, scenario.ranks));
  scenario.message_seconds = random() % 3 == 0 ? 0.05 : 0.001;
  if (random() % 2 == 0) scenario.straggler_seconds = 20 * scenario.message_seconds;
  scenario.grace_seconds = random() % 2 == 0 ? -1 : 0.01 * (random() % 4);
  if (random() % 3 == 0) scenario.mode_change_seconds = uniform(0.02, 0.5);
  if (random() % 6 == 0) {
    scenario.stop_seconds = uniform(0.01, 1);
    // A process that stops should be what is slow, and not its messages.
    const double patience = 40 * scenario.longest_message_seconds();
    if (random() % 4 != 0 && patience < 1) {
      scenario.leave_out_seconds = patience;
      scenario.stop_seconds = uniform(1, 4) * patience + uniform(0, 2);
      // A contribution keeps the weight of the round that it was given for,
      // though that may be made without its rank.
      scenario.weighted = false;
    }
  }
  if (random() % 6 == 0) {
    scenario.crash_rank = random() % scenario.ranks;
    const double steps = scenario.epochs * scenario.steps;
    scenario.crash_seconds = uniform(0, 1.5 * steps * scenario.step_seconds);
    scenario.notice_seconds = random() % 2 == 0 ? 0 : uniform(0, 0.5);
  }
  return scenario;
}

Mode Scenario::decided_after(std::uint64_t round) const {
  std::mt19937_64 random(seed * 1000003 + round);
  return random() % 2 == 0 ? Mode{ModeKind::kSync} : Mode{ModeKind::kQuorum, ranks};
}

std::string Scenario::describe() const {
  std::ostringstream text;
  text << "seed " << seed << ": " << ranks << " ranks, " << to_string(mode)
       << (latest_only ? ", latest" : ", replay") << (weighted ? ", weighted" : "")
       << (early_leaver ? ", one leaves early" : "") << (exclusions ? ", exclusions" : "")
       << (decisions ? ", decisions" : "") << ", max_lag " << max_lag << ", " << epochs
       << " epochs of about " << steps << " steps";
  for (const DelaySource& delay : delays) text << ", " << to_string(delay);
  text << ", messages to " << message_seconds << " s";
  if (straggler_seconds > 0) text << " (one in 16 to " << straggler_seconds << " s)";
  text << ", grace " << grace_seconds;
  if (mode_change_seconds > 0) text << ", a mode change every " << mode_change_seconds << " s";
  if (stop_seconds > 0) text << ", processes stopped for up to " << stop_seconds << " s";
  if (leave_out_seconds > 0) text << ", left out after " << leave_out_seconds << " s";
  if (crash_rank >= 0) {
    text << ", rank " << crash_rank << " dies at " << crash_seconds << " s, missed after "
         << notice_seconds << " s";
  }
  return text.str();
}

std::string Scenario::replay_command() const {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return "HVD_PARTIAL_SEED=" + std::to_string(seed) + ' ' +
         (error ? "simulation_test" : program.string()) + " --gtest_filter='" + replayed_by + "'";
}

double Scenario::longest_message_seconds() const {
  return std::max(message_seconds, straggler_seconds);
}

}  // namespace hvd_partial

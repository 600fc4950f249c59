// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "tensorflow/epoch_gate.h"

#include <algorithm>

namespace hvd_partial {

EpochGate& EpochGate::instance() {
  static EpochGate gate;
  return gate;
}

EpochGate::Epoch EpochGate::begin(std::int64_t gate, const Plan& plan, const ChannelTotals& now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& state = states_[gate];
  std::int64_t start = plan.passes * now.progress();
  if (state.ended && state.flushes == now.flushes) start = state.epoch.end;
  state.plan = plan;
  state.epoch = Epoch{now.progress(), now.own_settled(), start + plan.steps * plan.size};
  state.ended = false;
  return state.epoch;
}

double EpochGate::per_batch(const Plan& plan, const Epoch& epoch, const ChannelTotals& now) {
  const std::int64_t own = plan.passes * (now.own_settled() - epoch.settled);
  if (own <= 0) return static_cast<double>(plan.size);
  const std::int64_t all = plan.passes * (now.progress() - epoch.progress);
  return std::max(1.0, static_cast<double>(all) / static_cast<double>(own));
}

bool EpochGate::open(std::int64_t gate, const Plan& plan, const Epoch& epoch,
                     std::int64_t handed_out, const ChannelTotals& now) {
  // Keras does not take an epoch without a single batch.
  if (handed_out == 0) return true;
  const std::int64_t own = plan.passes * (now.own_settled() - epoch.settled);
  const std::int64_t on_their_way = std::max<std::int64_t>(0, handed_out - own);
  const double each = per_batch(plan, epoch, now);
  const double done = static_cast<double>(plan.passes * now.progress());
  const double middle_of_next = done + each * (static_cast<double>(on_their_way) + 0.5);
  if (middle_of_next <= static_cast<double>(epoch.end)) return true;
  end(gate, epoch, now);
  return false;
}

bool EpochGate::due(std::int64_t gate, std::int64_t published, const ChannelTotals& now) {
  State state;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = states_.find(gate);
    if (found == states_.end() || found->second.ended) return true;  // up to the pipeline
    state = found->second;
  }
  if (now.own_settled() == state.epoch.settled) return true;  // not a single batch yet
  const std::int64_t progress = std::max(now.progress(), published + now.skipped);
  const double done = static_cast<double>(state.plan.passes * progress);
  const double each = per_batch(state.plan, state.epoch, now);
  if (done + 0.5 * each <= static_cast<double>(state.epoch.end)) return true;
  end(gate, state.epoch, now);
  return false;
}

void EpochGate::end(std::int64_t gate, const Epoch& epoch, const ChannelTotals& now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = states_.find(gate);
  if (found == states_.end() || !(found->second.epoch == epoch)) return;
  State& state = found->second;
  state.ended = true;
  state.flushes = now.flushes;
}

void EpochGate::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  states_.clear();
}

}  // namespace hvd_partial

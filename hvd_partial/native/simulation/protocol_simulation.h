// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_SIMULATION_PROTOCOL_SIMULATION_H_
#define HVD_PARTIAL_SIMULATION_PROTOCOL_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "protocol/mode.h"
#include "simulation/trace.h"

namespace hvd_partial {

struct SimulatedJob {
  int ranks = 2;
  Mode mode;
  int max_lag = 8;
  double grace_seconds = -1;        // negative: learned
  double message_seconds = 0;       // of a control message, one way
  double reduce_seconds = 0;        // from the moment that the last rank joins a round
  double apply_seconds = 0;         // of one result
  std::uint64_t contributions = 0;  // it ends with the round that has the last of them
};

struct SimulatedOutcome {
  double seconds = 0;
  std::uint64_t contributions = 0;
  std::vector<std::uint64_t> rounds_with;       // [n]: rounds with n contributions
  std::vector<std::uint64_t> staleness;         // [tau]: contributions that came tau rounds late
  std::vector<std::uint64_t> contributions_of;  // by rank
  std::vector<double> waiting_seconds_of;       // by rank
  int largest_lag = 0;
  double held_up_seconds = 0;  // in which a full ring kept a rank from an activated round
  double grace_seconds = 0;    // in force at the end
};

// A job that does nothing but call allreduce, on simulated time: the real
// Coordinator and Members, without buffers, transport and threads between
// them. `keep_going` is asked now and then, with the share that is done;
// kAborted if it says no.
Status simulate(const SimulatedJob& job, const Trace& trace,
                const std::function<bool(double)>& keep_going, SimulatedOutcome* outcome);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_SIMULATION_PROTOCOL_SIMULATION_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_SIMULATION_TRACE_H_
#define HVD_PARTIAL_SIMULATION_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hvd_partial {

// A reason why steps take longer than they should.
struct DelaySource {
  // Values are known to hvd_partial/traces.py.
  enum class Kind : std::int32_t {
    kConstant = 0,   // every rank: `a` seconds
    kLogNormal = 1,  // every rank: median `a`, sigma `b` of the logarithm
    kPareto = 2,     // every rank: at least `a`, tail index `b`
    kOneSlow = 3,    // rank `a` (negative: from the end): `b` seconds
    kOneRandom = 4,  // one rank, drawn for each step: `a` seconds
    kRotating = 5,   // from `a` to `b` in equal parts, moving on by a rank in each step
    kPauses = 6,     // every rank, with probability `a`: `b` seconds
  };
  Kind kind = Kind::kConstant;
  double a = 0;
  double b = 0;
};

std::string to_string(const DelaySource& source);

// How long each rank computes in each of its steps. A pure function of seed,
// rank and step: whatever order the steps come in, and in whatever mode, the
// delays are the same.
class Trace {
 public:
  // `recorded`, if not empty: seconds of whole steps by rank, none of them
  // empty, repeated as often as needed; more ranks than recorded ones use
  // them again, from other places. Seed 0 starts at the beginning, others
  // elsewhere. Everything adds up.
  Trace(int ranks, std::uint64_t seed, double compute_seconds, std::vector<DelaySource> sources,
        std::vector<std::vector<double>> recorded = {});

  double seconds(int rank, std::uint64_t step) const;

 private:
  double delay(const DelaySource& source, std::uint64_t stream, int rank, std::uint64_t step) const;

  const int ranks_;
  const std::uint64_t seed_;
  const double compute_seconds_;
  const std::vector<DelaySource> sources_;
  const std::vector<std::vector<double>> recorded_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_SIMULATION_TRACE_H_

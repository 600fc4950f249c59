// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "simulation/trace.h"

#include <cmath>
#include <cstdio>
#include <utility>

namespace hvd_partial {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  return mix(mix(mix(mix(a) ^ b) ^ c) ^ d);
}

// In (0, 1): neither end, so that logarithms and roots are finite.
double to_unit(std::uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 0.5) / 9007199254740992.0;  // 2^53
}

double to_normal(std::uint64_t bits) {  // Box and Muller, 1958
  constexpr double kPi = 3.14159265358979323846;
  return std::sqrt(-2 * std::log(to_unit(bits))) * std::cos(2 * kPi * to_unit(mix(bits)));
}

}  // namespace

std::string to_string(const DelaySource& source) {
  constexpr const char* kNames[] = {"constant",   "lognormal", "pareto", "one-slow",
                                    "one-random", "rotating",  "pauses"};
  char text[96];
  std::snprintf(text, sizeof(text), "%s:%g,%g", kNames[static_cast<int>(source.kind)], source.a,
                source.b);
  return text;
}

Trace::Trace(int ranks, std::uint64_t seed, double compute_seconds,
             std::vector<DelaySource> sources, std::vector<std::vector<double>> recorded)
    : ranks_(ranks),
      seed_(seed),
      compute_seconds_(compute_seconds),
      sources_(std::move(sources)),
      recorded_(std::move(recorded)) {}

double Trace::seconds(int rank, std::uint64_t step) const {
  double seconds = compute_seconds_;
  if (!recorded_.empty()) {
    const auto& column = recorded_[rank % recorded_.size()];
    const std::uint64_t use = rank / recorded_.size();
    // The same place for all ranks of one use: what was late together stays together.
    const std::uint64_t start = seed_ == 0 && use == 0 ? 0 : mix(seed_, use, 0, 0);
    seconds += column[(start % column.size() + step) % column.size()];
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    seconds += delay(sources_[i], i + 1, rank, step);
  }
  return seconds;
}

double Trace::delay(const DelaySource& source, std::uint64_t stream, int rank,
                    std::uint64_t step) const {
  const auto own_draw = [&] { return mix(seed_, stream, step, static_cast<std::uint64_t>(rank)); };
  switch (source.kind) {
    case DelaySource::Kind::kConstant:
      return source.a;
    case DelaySource::Kind::kLogNormal:
      return source.a * std::exp(source.b * to_normal(own_draw()));
    case DelaySource::Kind::kPareto:
      return source.a * std::pow(to_unit(own_draw()), -1 / source.b);
    case DelaySource::Kind::kOneSlow: {
      const int slow = static_cast<int>(source.a) % ranks_;
      return rank == (slow < 0 ? slow + ranks_ : slow) ? source.b : 0;
    }
    case DelaySource::Kind::kOneRandom: {
      const auto drawn = mix(seed_, stream, step, 0) % static_cast<std::uint64_t>(ranks_);
      return static_cast<std::uint64_t>(rank) == drawn ? source.a : 0;
    }
    case DelaySource::Kind::kRotating: {
      if (ranks_ == 1) return source.a;
      const auto place = (static_cast<std::uint64_t>(rank) + step) % ranks_;
      return source.a + (source.b - source.a) * static_cast<double>(place) / (ranks_ - 1);
    }
    case DelaySource::Kind::kPauses:
      return to_unit(own_draw()) < source.a ? source.b : 0;
  }
  return 0;
}

}  // namespace hvd_partial

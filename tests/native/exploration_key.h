// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_EXPLORATION_KEY_H_
#define HVD_PARTIAL_TESTS_EXPLORATION_KEY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "protocol/coordinator.h"
#include "protocol/member.h"

namespace hvd_partial {

// 128 bits that stand for a state. Two of a hundred million states share
// theirs with a probability of about 1e-23.
struct Key {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Key& a, const Key& b) { return a.high == b.high && a.low == b.low; }
  friend bool operator!=(const Key& a, const Key& b) { return !(a == b); }
  friend bool operator<(const Key& a, const Key& b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
  }
};

// The numbers of a state, one after the other. Whoever puts a list puts its
// length first: then no two states have the same bytes.
class KeyWriter {
 public:
  void put(std::uint64_t value) {
    if (value < 0xFF) {
      push(static_cast<std::uint8_t>(value));
      return;
    }
    push(0xFF);
    for (int byte = 0; byte < 8; ++byte) push(static_cast<std::uint8_t>(value >> (8 * byte)));
  }
  void put(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    put(bits);
  }
  void put(const Mode& mode) {
    put(static_cast<std::uint64_t>(mode.kind));
    put(static_cast<std::uint64_t>(mode.quorum));
    put(mode.seed);
  }

  // Two lanes of SplitMix64's finaliser over words of eight bytes.
  Key finish() {
    while (size_ % 8 != 0) push(0);
    Key key{size_, ~std::uint64_t{size_}};
    for (std::size_t i = 0; i < size_; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, &bytes_[i], sizeof word);
      key.high = mix((key.high + word) * 0x9E3779B97F4A7C15ull);
      key.low = mix((key.low ^ word) * 0xD6E8FEB86659FD93ull + 0x2545F4914F6CDD1Dull);
    }
    size_ = 0;
    return key;
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }
  void push(std::uint8_t byte) {
    if (size_ == bytes_.size()) throw std::length_error("a state larger than any foreseen");
    bytes_[size_++] = byte;
  }

  std::array<std::uint8_t, 2048> bytes_;
  std::size_t size_ = 0;
};

// Reads what decides the future of the two state machines.
class ProtocolState {
 public:
  // Ranks in the given order. The grace is not learned in an exploration, and
  // a name or a signature never changes.
  static void put(const Coordinator& coordinator, const std::vector<int>& order, KeyWriter* key);
  // `awaits`: the user's thread is in a call, so that awaited() is read again
  // before it is written.
  static void put(const Member& member, bool awaits, KeyWriter* key);
  // It has said that it holds a contribution, and no round has started since.
  static bool departing(const Coordinator& coordinator, int rank);
  static const std::vector<std::uint64_t>& ring(const Member& member) { return member.unreleased_; }
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_EXPLORATION_KEY_H_

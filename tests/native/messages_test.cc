// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/messages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace hvd_partial {
namespace {

std::vector<Message> one_of_each() {
  const Mode quorum{ModeKind::kQuorum, 3, 0};
  const Mode designated{ModeKind::kDesignated, 0, 0xFEEDFACECAFEBEEF};
  return {OpenChannel{"gradients", "2 tensors\nfloat32", quorum, 0.25},
          Call{7, 1ull << 40, true, 0.125},
          SetMode{kAllChannels, designated},
          Flush{3},
          Leave{4, true, 7},
          Goodbye{},
          Abort{"ValueError: no"},
          ChannelOpened{"gradients", 9},
          ChannelRejected{"gradients", "rank 1 has other shapes"},
          Members{2, {0x3, 0x1}},
          Activate{2, 41, quorum, true},
          PeerLost{5, "connection reset"},
          Aborted{1, "ValueError: no"},
          StillTraining{},
          AllGone{}};
}

// Encoding is a function of the value, so equal bytes mean equal messages.
TEST(Messages, SurviveTheWire) {
  std::vector<std::uint8_t> wire, again;
  ASSERT_EQ(one_of_each().size(), std::variant_size_v<Message>);
  for (const Message& message : one_of_each()) {
    encode(message, &wire);
    const auto decoded = decode(wire.data(), wire.size());
    ASSERT_TRUE(decoded.has_value()) << "alternative " << message.index();
    EXPECT_EQ(decoded->index(), message.index());
    encode(*decoded, &again);
    EXPECT_EQ(wire, again) << "alternative " << message.index();
  }
  encode(one_of_each()[1], &wire);
  const auto call = std::get<Call>(*decode(wire.data(), wire.size()));
  EXPECT_EQ(call.channel, 7);
  EXPECT_EQ(call.round, 1ull << 40);
  EXPECT_TRUE(call.waiting);
  EXPECT_EQ(call.compute_seconds, 0.125);
}

TEST(Messages, RefuseWhatIsCutOffOrTooLong) {
  std::vector<std::uint8_t> wire;
  for (const Message& message : one_of_each()) {
    encode(message, &wire);
    for (std::size_t size = 0; size < wire.size(); ++size) {
      EXPECT_FALSE(decode(wire.data(), size).has_value())
          << "alternative " << message.index() << ", " << size << " of " << wire.size();
    }
    wire.push_back(0);
    EXPECT_FALSE(decode(wire.data(), wire.size()).has_value());
  }
}

TEST(Messages, RefuseAnotherVersion) {
  std::vector<std::uint8_t> wire;
  encode(Goodbye{}, &wire);
  ++wire[0];
  EXPECT_FALSE(decode(wire.data(), wire.size()).has_value());
}

// Sizes inside a message are not believed: no read beyond the bytes (the
// address sanitizer build sees one), no giant allocation.
TEST(Messages, SurviveRandomBytes) {
  std::mt19937 random(20261130);
  std::vector<std::uint8_t> wire;
  for (int i = 0; i < 20000; ++i) {
    wire.resize(random() % 64);
    for (auto& byte : wire) byte = static_cast<std::uint8_t>(random());
    if (wire.size() >= 2) {
      wire[0] = 1;
      wire[1] = static_cast<std::uint8_t>(random() % (std::variant_size_v<Message> + 1));
    }
    (void)decode(wire.data(), wire.size());
  }
}

}  // namespace
}  // namespace hvd_partial

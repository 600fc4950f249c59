// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "protocol/objections.h"

namespace hvd_partial {
namespace {

std::vector<Message> one_of_each() {
  const Mode quorum{ModeKind::kQuorum, 3, 0};
  const Mode designated{ModeKind::kDesignated, 0, 0xFEEDFACECAFEBEEF};
  return {OpenChannel{"gradients", "2 tensors\nfloat32", quorum, 0.25, 8},
          Call{7, 1ull << 40, true, 0.125},
          SetMode{kAllChannels, designated},
          Exclude{3, {0x5, 0}, true},
          Decide{3, 1ull << 33, quorum, {0x2}, true},
          Flush{3},
          Leave{4, true, 7},
          Goodbye{},
          Abort{"ValueError: no"},
          ChannelOpened{"gradients", 9},
          ChannelRejected{"gradients", "rank 1 has other shapes"},
          Members{2, {0x3, 0x1}, {0x2}, true, 41},
          Activate{2, 41, quorum, true, 39},
          PeerLost{5, "connection reset"},
          Aborted{1, "ValueError: no"},
          StillTraining{},
          AllGone{},
          Held{6, 1ull << 41, HeldCause::kRingFull, 31.5},
          StallTold{6, 41, "round 41 waits for rank 3"},
          Frozen{3, {41, 1ull << 40}},
          Freeze{3},
          Thaw{3},
          Defer{2, 41},
          Deliver{2, 41, 47, 0, 5}};
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

// What a random message holds: any value that its meaning allows.
class RandomMessages {
 public:
  explicit RandomMessages(unsigned seed) : random_(seed) {}

  Message next() {
    switch (random_() % std::variant_size_v<Message>) {
      case 0:
        return OpenChannel{text(kMaxNameBytes), text(1 << 16), mode(), number() * (flip() ? 1 : -1),
                           static_cast<std::uint32_t>(random_())};
      case 1:
        return Call{channel(), random_(), flip(), number()};
      case 2:
        return SetMode{channel(), mode()};
      case 3:
        return Flush{channel()};
      case 4:
        return Leave{channel(), flip()};
      case 5:
        return Goodbye{};
      case 6:
        return Abort{text(kMaxReasonBytes)};
      case 7:
        return ChannelOpened{text(kMaxNameBytes), channel()};
      case 8:
        return ChannelRejected{text(kMaxNameBytes), text(kMaxReasonBytes)};
      case 9: {
        Members members{channel(), {}, {}, false};
        members.bits.resize(random_() % 1025);
        for (auto& word : members.bits) word = random_();
        if (flip()) members.keep_from = random_();
        return members;
      }
      case 10:
        return Activate{channel(), 1 + random_() / 2, mode(), flip(), flip() ? 0 : kNoRound};
      case 11:
        return PeerLost{rank(), text(kMaxReasonBytes)};
      case 12:
        return Aborted{rank(), text(kMaxReasonBytes)};
      case 13:
        return StillTraining{};
      case 14: {
        Frozen frozen{random_(), {}};
        frozen.published.resize(random_() % 300);
        for (auto& rounds : frozen.published) rounds = random_();
        return frozen;
      }
      case 15:
        return Freeze{random_()};
      case 16:
        return Thaw{random_()};
      case 17:
        return Defer{channel(), random_()};
      case 18:
        return Deliver{channel(), random_() / 4, random_() / 4 + ~0ull / 2, rank(), rank()};
      default:
        return AllGone{};
    }
  }

 private:
  bool flip() { return random_() % 2 == 1; }
  ChannelId channel() { return static_cast<ChannelId>(random_()); }
  std::int32_t rank() { return static_cast<std::int32_t>(random_() % 65536); }
  double number() { return std::ldexp(static_cast<double>(random_() % 1000), flip() ? -40 : 40); }
  Mode mode() {
    return Mode{static_cast<ModeKind>(random_() % 6),
                1 + static_cast<std::int32_t>(random_() % 65536), random_()};
  }
  // Mostly short, of any bytes.
  std::string text(std::size_t longest) {
    std::string bytes(flip() ? random_() % 20 : random_() % (longest + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  std::mt19937_64 random_;
};

TEST(Messages, AnyMessageSurvivesTheWire) {
  RandomMessages messages(20261130);
  std::vector<std::uint8_t> wire, again;
  for (int i = 0; i < 3000; ++i) {
    const Message message = messages.next();
    encode(message, &wire);
    ASSERT_LE(wire.size(), kMaxMessageBytes);
    const auto decoded = decode(wire.data(), wire.size());
    ASSERT_TRUE(decoded.has_value()) << "alternative " << message.index();
    ASSERT_EQ(decoded->index(), message.index());
    encode(*decoded, &again);
    ASSERT_EQ(wire, again) << "alternative " << message.index();
  }
}

// A change of one byte is another message or none: what is read has one way to
// be written, so nothing half-understood gets through.
TEST(Messages, EveryChangedByteIsAnotherMessageOrNone) {
  std::vector<std::uint8_t> wire, again;
  int refused = 0, read = 0;
  for (const Message& message : one_of_each()) {
    encode(message, &wire);
    for (std::size_t i = 0; i < wire.size(); ++i) {
      const std::uint8_t before = wire[i];
      for (int value = 0; value < 256; ++value) {
        if (value == before) continue;
        wire[i] = static_cast<std::uint8_t>(value);
        const auto decoded = decode(wire.data(), wire.size());
        (decoded.has_value() ? read : refused) += 1;
        if (!decoded.has_value()) continue;
        encode(*decoded, &again);
        ASSERT_EQ(wire, again) << "alternative " << message.index() << ", byte " << i << " = "
                               << value;
      }
      wire[i] = before;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 1000);
}

TEST(Messages, RefuseValuesThatHaveNoMeaning) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  const Mode good;
  const std::vector<std::pair<const char*, Message>> bad = {
      {"kind of mode", SetMode{0, Mode{static_cast<ModeKind>(6), 0, 0}}},
      {"negative kind", Activate{0, 0, Mode{static_cast<ModeKind>(-1), 0, 0}, false}},
      {"quorum of none", SetMode{0, Mode{ModeKind::kQuorum, 0, 0}}},
      {"quorum of too many", SetMode{0, Mode{ModeKind::kQuorum, 65537, 0}}},
      {"grace nan", OpenChannel{"c", "s", good, nan}},
      {"grace infinite", OpenChannel{"c", "s", good, -infinite}},
      {"seconds nan", Call{0, 0, true, nan}},
      {"seconds infinite", Call{0, 0, true, infinite}},
      {"seconds negative", Call{0, 0, true, -1e-9}},
      {"long name", OpenChannel{std::string(kMaxNameBytes + 1, 'n'), "s", good, 0}},
      {"long signature", OpenChannel{"c", std::string(kMaxSignatureBytes + 1, 's'), good, 0}},
      {"many members", Members{0, std::vector<std::uint64_t>(1025, 1), {}, false}},
      {"many excluded", Members{0, {}, std::vector<std::uint64_t>(1025, 1), false}},
      {"many to exclude", Exclude{0, std::vector<std::uint64_t>(1025, 1), false}},
      {"decided mode", Decide{0, 1, Mode{ModeKind::kQuorum, 0, 0}, {}, false}},
      {"decided excluded", Decide{0, 1, good, std::vector<std::uint64_t>(1025, 1), false}},
      {"cause of holding", Held{0, 0, static_cast<HeldCause>(4), 1}},
      {"seconds held", Held{0, 0, HeldCause::kReducing, -1}},
      {"deferred to an earlier round", Activate{0, 4, good, false, 4}},
      {"the wrong way round", Deliver{0, 5, 4, 0, 1}},
      {"no round", Deliver{0, 5, kNoRound, 0, 1}},
      {"giver", Deliver{0, 4, 5, -1, 1}},
      {"taker", Deliver{0, 4, 5, 0, 65536}},
      {"negative rank", PeerLost{-1, "r"}},
      {"rank too large", Aborted{65536, "r"}},
  };
  std::vector<std::uint8_t> wire;
  for (const auto& [what, message] : bad) {
    encode(message, &wire);
    EXPECT_FALSE(decode(wire.data(), wire.size()).has_value()) << what;
  }
  // Flags are 0 or 1; these messages end with theirs.
  for (const Message& message :
       {Message{Exclude{4, {}, true}}, Message{Decide{4, 1, good, {}, true}}}) {
    encode(message, &wire);
    ASSERT_TRUE(decode(wire.data(), wire.size()).has_value());
    wire.back() = 2;
    EXPECT_FALSE(decode(wire.data(), wire.size()).has_value());
  }
}

// An exception's text may be of any length, and may not break a character.
TEST(Messages, CutReasonsThatAreTooLong) {
  std::vector<std::uint8_t> wire;
  for (std::size_t extra = 0; extra < 4; ++extra) {
    std::string reason(extra, 'x');
    while (reason.size() < 2 * kMaxReasonBytes) reason += "\xE2\x82\xAC";  // the euro sign
    encode(Abort{reason}, &wire);
    const auto decoded = decode(wire.data(), wire.size());
    ASSERT_TRUE(decoded.has_value());
    const std::string cut = std::get<Abort>(*decoded).reason;
    EXPECT_LE(cut.size(), kMaxReasonBytes);
    const std::size_t end = cut.find(" ... (cut)");
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ((end - extra) % 3, 0u);
  }
}

TEST(Messages, ThoseThatDoNotFitTheJobAreRefused) {
  const auto to_rank = [](const Message& message) { return objection_of_rank(message, 1, 70); };
  const auto to_coordinator = [](const Message& message) {
    return objection_of_coordinator(message, 70);
  };
  const Mode quorum{ModeKind::kQuorum, 71, 0};
  EXPECT_EQ(to_rank(Members{0, {~0ull, 0x3F}, {}, false}), "");
  EXPECT_NE(to_rank(Members{0, {~0ull, 0x7F}, {}, false}), "");      // rank 70
  EXPECT_NE(to_rank(Members{0, {~0ull}, {}, false}), "");            // too few words
  EXPECT_NE(to_rank(Members{0, {~0ull, 0, 0}, {}, false}), "");      // too many
  EXPECT_NE(to_rank(Members{0, {~0ull - 2, 0x3F}, {}, false}), "");  // not the rank itself
  EXPECT_EQ(to_rank(Members{0, {~0ull - 2, 0x3F}, {}, false, 7}), "");
  EXPECT_EQ(to_rank(Deliver{0, 1, 2, 1, 69}), "");
  EXPECT_NE(to_rank(Deliver{0, 1, 2, 1, 1}), "");   // to itself
  EXPECT_NE(to_rank(Deliver{0, 1, 2, 1, 70}), "");  // to nobody
  EXPECT_NE(to_rank(Deliver{0, 1, 2, 2, 3}), "");   // others
  EXPECT_NE(to_rank(Frozen{}), "");
  EXPECT_NE(to_coordinator(Freeze{}), "");
  EXPECT_EQ(to_rank(Members{0, {~0ull, 0x3F}, {0, 0x20}, false}), "");
  EXPECT_NE(to_rank(Members{0, {~0ull, 0x3F}, {0, 0x40}, false}), "");  // excludes rank 70
  EXPECT_NE(to_rank(Activate{0, 0, quorum, false}), "");                // more than there are
  EXPECT_NE(to_rank(PeerLost{70, "r"}), "");
  EXPECT_NE(to_rank(Aborted{-1, "r"}), "");
  EXPECT_NE(to_rank(ChannelOpened{"c", kAllChannels}), "");
  EXPECT_NE(to_rank(Call{}), "");  // the wrong way
  EXPECT_NE(to_coordinator(Activate{}), "");
  EXPECT_NE(to_coordinator(SetMode{0, quorum}), "");
  EXPECT_NE(to_coordinator(OpenChannel{"c", "s", quorum, 0}), "");
  EXPECT_NE(to_coordinator(Exclude{0, {0, 0x40}, false}), "");
  EXPECT_NE(to_coordinator(Decide{0, 1, quorum, {}, false}), "");
  EXPECT_EQ(to_coordinator(Call{}), "");
  EXPECT_EQ(describe_kind(Call{}), "Call");
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
      wire[0] = 3;  // kWireVersion
      wire[1] = static_cast<std::uint8_t>(random() % (std::variant_size_v<Message> + 1));
    }
    (void)decode(wire.data(), wire.size());
  }
  encode(Goodbye{}, &wire);
  EXPECT_EQ(wire[0], 3) << "the random bytes above pass for another version";
}

}  // namespace
}  // namespace hvd_partial

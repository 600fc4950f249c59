// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/messages.h"

#include <cmath>
#include <utility>

#include "base/bytes.h"

namespace hvd_partial {
namespace {

// Raised by one whenever a message changes, so that ranks of different builds
// refuse each other instead of misreading.
constexpr std::uint8_t kWireVersion = 3;
constexpr int kMaxRanks = 1 << 16;
constexpr std::uint32_t kMaxMemberWords = kMaxRanks / 64;

void put_mode(ByteWriter* out, const Mode& mode) {
  out->put(static_cast<std::int32_t>(mode.kind));
  out->put(mode.quorum);
  out->put(mode.seed);
}

Mode get_mode(ByteReader* in) {
  Mode mode;
  const auto kind = in->get<std::int32_t>();
  mode.quorum = in->get<std::int32_t>();
  mode.seed = in->get<std::uint64_t>();
  mode.kind = static_cast<ModeKind>(kind);
  if (!valid(mode, kMaxRanks)) in->refuse();
  return mode;
}

std::int32_t get_rank(ByteReader* in) {
  const auto rank = in->get<std::int32_t>();
  if (rank < 0 || rank >= kMaxRanks) in->refuse();
  return rank;
}

double get_seconds(ByteReader* in, bool may_be_negative) {
  const auto seconds = in->get<double>();
  if (!std::isfinite(seconds) || (seconds < 0 && !may_be_negative)) in->refuse();
  return seconds;
}

// Reasons hold what users' exceptions say, of any length.
void put_reason(ByteWriter* out, const std::string& reason) {
  if (reason.size() <= kMaxReasonBytes) {
    out->put(reason);
    return;
  }
  static const std::string kEnd = " ... (cut)";
  std::size_t size = kMaxReasonBytes - kEnd.size();
  const auto continues = [&](std::size_t i) {  // not the first byte of a UTF-8 character
    return (static_cast<unsigned char>(reason[i]) & 0xC0) == 0x80;
  };
  for (int i = 0; i < 3 && continues(size); ++i) --size;
  out->put(reason.substr(0, size) + kEnd);
}

void put_bits(ByteWriter* out, const std::vector<std::uint64_t>& bits) {
  out->put(static_cast<std::uint32_t>(bits.size()));
  for (std::uint64_t word : bits) out->put(word);
}

void get_bits(ByteReader* in, std::vector<std::uint64_t>* bits) {
  const auto words = in->get<std::uint32_t>();
  if (words > kMaxMemberWords) in->refuse();
  if (!in->ok()) return;
  bits->reserve(words);
  for (std::uint32_t i = 0; i < words && in->ok(); ++i) bits->push_back(in->get<std::uint64_t>());
}

// One put/get pair for each message, in one place, so that they stay alike.
void put(ByteWriter* out, const OpenChannel& m) {
  out->put(m.name);
  out->put(m.signature);
  put_mode(out, m.mode);
  out->put(m.grace_seconds);
  out->put(m.max_lag);
}
void get(ByteReader* in, OpenChannel* m) {
  m->name = in->get_string(kMaxNameBytes);
  m->signature = in->get_string(kMaxSignatureBytes);
  m->mode = get_mode(in);
  m->grace_seconds = get_seconds(in, /*may_be_negative=*/true);
  m->max_lag = in->get<std::uint32_t>();
}

void put(ByteWriter* out, const Call& m) {
  out->put(m.channel);
  out->put(m.round);
  out->put(static_cast<std::uint8_t>(m.waiting));
  out->put(m.compute_seconds);
}
void get(ByteReader* in, Call* m) {
  m->channel = in->get<ChannelId>();
  m->round = in->get<std::uint64_t>();
  m->waiting = in->get_flag();
  m->compute_seconds = get_seconds(in, /*may_be_negative=*/false);
}

void put(ByteWriter* out, const SetMode& m) {
  out->put(m.channel);
  put_mode(out, m.mode);
}
void get(ByteReader* in, SetMode* m) {
  m->channel = in->get<ChannelId>();
  m->mode = get_mode(in);
}

void put(ByteWriter* out, const Exclude& m) {
  out->put(m.channel);
  put_bits(out, m.bits);
  out->put(static_cast<std::uint8_t>(m.drop));
}
void get(ByteReader* in, Exclude* m) {
  m->channel = in->get<ChannelId>();
  get_bits(in, &m->bits);
  m->drop = in->get_flag();
}

void put(ByteWriter* out, const Decide& m) {
  out->put(m.channel);
  out->put(m.number);
  put_mode(out, m.mode);
  put_bits(out, m.excluded);
  out->put(static_cast<std::uint8_t>(m.drop));
}
void get(ByteReader* in, Decide* m) {
  m->channel = in->get<ChannelId>();
  m->number = in->get<std::uint64_t>();
  m->mode = get_mode(in);
  get_bits(in, &m->excluded);
  m->drop = in->get_flag();
}

void put(ByteWriter* out, const Flush& m) { out->put(m.channel); }
void get(ByteReader* in, Flush* m) { m->channel = in->get<ChannelId>(); }

void put(ByteWriter* out, const Leave& m) {
  out->put(m.channel);
  out->put(static_cast<std::uint8_t>(m.holds_contribution));
  out->put(m.round);
}
void get(ByteReader* in, Leave* m) {
  m->channel = in->get<ChannelId>();
  m->holds_contribution = in->get_flag();
  m->round = in->get<std::uint64_t>();
}

void put(ByteWriter*, const Goodbye&) {}
void get(ByteReader*, Goodbye*) {}

void put(ByteWriter* out, const Abort& m) { put_reason(out, m.reason); }
void get(ByteReader* in, Abort* m) { m->reason = in->get_string(kMaxReasonBytes); }

void put(ByteWriter* out, const ChannelOpened& m) {
  out->put(m.name);
  out->put(m.channel);
}
void get(ByteReader* in, ChannelOpened* m) {
  m->name = in->get_string(kMaxNameBytes);
  m->channel = in->get<ChannelId>();
}

void put(ByteWriter* out, const ChannelRejected& m) {
  out->put(m.name);
  put_reason(out, m.reason);
}
void get(ByteReader* in, ChannelRejected* m) {
  m->name = in->get_string(kMaxNameBytes);
  m->reason = in->get_string(kMaxReasonBytes);
}

void put(ByteWriter* out, const Members& m) {
  out->put(m.channel);
  put_bits(out, m.bits);
  put_bits(out, m.excluded);
  out->put(static_cast<std::uint8_t>(m.drop));
  out->put(m.keep_from);
}
void get(ByteReader* in, Members* m) {
  m->channel = in->get<ChannelId>();
  get_bits(in, &m->bits);
  get_bits(in, &m->excluded);
  m->drop = in->get_flag();
  m->keep_from = in->get<std::uint64_t>();
}

void put(ByteWriter* out, const Activate& m) {
  out->put(m.channel);
  out->put(m.round);
  put_mode(out, m.mode);
  out->put(static_cast<std::uint8_t>(m.flush));
  out->put(m.deferred);
}
void get(ByteReader* in, Activate* m) {
  m->channel = in->get<ChannelId>();
  m->round = in->get<std::uint64_t>();
  m->mode = get_mode(in);
  m->flush = in->get_flag();
  m->deferred = in->get<std::uint64_t>();
  if (m->deferred != kNoRound && m->deferred >= m->round) in->refuse();
}

void put(ByteWriter* out, const PeerLost& m) {
  out->put(m.peer);
  put_reason(out, m.reason);
}
void get(ByteReader* in, PeerLost* m) {
  m->peer = get_rank(in);
  m->reason = in->get_string(kMaxReasonBytes);
}

void put(ByteWriter* out, const Aborted& m) {
  out->put(m.peer);
  put_reason(out, m.reason);
}
void get(ByteReader* in, Aborted* m) {
  m->peer = get_rank(in);
  m->reason = in->get_string(kMaxReasonBytes);
}

void put(ByteWriter*, const StillTraining&) {}
void get(ByteReader*, StillTraining*) {}
void put(ByteWriter*, const AllGone&) {}
void get(ByteReader*, AllGone*) {}

void put(ByteWriter* out, const Held& m) {
  out->put(m.channel);
  out->put(m.round);
  out->put(static_cast<std::uint8_t>(m.cause));
  out->put(m.seconds);
}
void get(ByteReader* in, Held* m) {
  m->channel = in->get<ChannelId>();
  m->round = in->get<std::uint64_t>();
  m->cause = static_cast<HeldCause>(in->get<std::uint8_t>());
  if (m->cause > HeldCause::kReducing) in->refuse();
  m->seconds = get_seconds(in, /*may_be_negative=*/false);
}

void put(ByteWriter* out, const StallTold& m) {
  out->put(m.channel);
  out->put(m.round);
  put_reason(out, m.text);
}
void get(ByteReader* in, StallTold* m) {
  m->channel = in->get<ChannelId>();
  m->round = in->get<std::uint64_t>();
  m->text = in->get_string(kMaxReasonBytes);
}

void put(ByteWriter* out, const Frozen& m) {
  out->put(m.number);
  out->put(static_cast<std::uint32_t>(m.published.size()));
  for (const std::uint64_t rounds : m.published) out->put(rounds);
}
void get(ByteReader* in, Frozen* m) {
  m->number = in->get<std::uint64_t>();
  const auto channels = in->get<std::uint32_t>();
  if (channels > kAllChannels) in->refuse();
  for (std::uint32_t i = 0; i < channels && in->ok(); ++i) {
    m->published.push_back(in->get<std::uint64_t>());
  }
}

void put(ByteWriter* out, const Freeze& m) { out->put(m.number); }
void get(ByteReader* in, Freeze* m) { m->number = in->get<std::uint64_t>(); }
void put(ByteWriter* out, const Thaw& m) { out->put(m.number); }
void get(ByteReader* in, Thaw* m) { m->number = in->get<std::uint64_t>(); }

void put(ByteWriter* out, const Defer& m) {
  out->put(m.channel);
  out->put(m.round);
}
void get(ByteReader* in, Defer* m) {
  m->channel = in->get<ChannelId>();
  m->round = in->get<std::uint64_t>();
}

void put(ByteWriter* out, const Deliver& m) {
  out->put(m.channel);
  out->put(m.first);
  out->put(m.last);
  out->put(m.from);
  out->put(m.to);
}
void get(ByteReader* in, Deliver* m) {
  m->channel = in->get<ChannelId>();
  m->first = in->get<std::uint64_t>();
  m->last = in->get<std::uint64_t>();
  m->from = get_rank(in);
  m->to = get_rank(in);
  if (m->last < m->first || m->last == kNoRound) in->refuse();
}

template <std::size_t kIndex = 0>
std::optional<Message> decode_alternative(std::size_t index, ByteReader* in) {
  if constexpr (kIndex < std::variant_size_v<Message>) {
    if (index != kIndex) return decode_alternative<kIndex + 1>(index, in);
    std::variant_alternative_t<kIndex, Message> message;
    get(in, &message);
    if (!in->finished()) return std::nullopt;
    return Message(std::move(message));
  } else {
    return std::nullopt;
  }
}

}  // namespace

bool has_rank(const std::vector<std::uint64_t>& bits, int rank) {
  const auto word = static_cast<std::size_t>(rank / 64);
  return word < bits.size() && ((bits[word] >> (rank % 64)) & 1) != 0;
}

void add_rank(std::vector<std::uint64_t>* bits, int rank) {
  (*bits)[static_cast<std::size_t>(rank / 64)] |= std::uint64_t{1} << (rank % 64);
}

void encode(const Message& message, std::vector<std::uint8_t>* buffer) {
  ByteWriter out(buffer);
  out.put(kWireVersion);
  out.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&out](const auto& m) { put(&out, m); }, message);
}

std::optional<Message> decode(const std::uint8_t* data, std::size_t size) {
  if (size > kMaxMessageBytes) return std::nullopt;
  ByteReader in(data, size);
  if (in.get<std::uint8_t>() != kWireVersion) return std::nullopt;
  const auto index = in.get<std::uint8_t>();
  if (!in.ok()) return std::nullopt;
  return decode_alternative(index, &in);
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/messages.h"

#include <utility>

#include "base/bytes.h"

namespace hvd_partial {
namespace {

// Raised by one whenever a message changes, so that ranks of different builds
// refuse each other instead of misreading.
constexpr std::uint8_t kWireVersion = 2;
constexpr std::uint32_t kMaxMemberWords = 1u << 10;

void put_mode(ByteWriter* out, const Mode& mode) {
  out->put(static_cast<std::int32_t>(mode.kind));
  out->put(mode.quorum);
  out->put(mode.seed);
}

Mode get_mode(ByteReader* in) {
  Mode mode;
  mode.kind = static_cast<ModeKind>(in->get<std::int32_t>());
  mode.quorum = in->get<std::int32_t>();
  mode.seed = in->get<std::uint64_t>();
  return mode;
}

void put_bits(ByteWriter* out, const std::vector<std::uint64_t>& bits) {
  out->put(static_cast<std::uint32_t>(bits.size()));
  for (std::uint64_t word : bits) out->put(word);
}

// False leaves bytes over: not well-formed.
bool get_bits(ByteReader* in, std::vector<std::uint64_t>* bits) {
  const auto words = in->get<std::uint32_t>();
  if (words > kMaxMemberWords) return false;
  bits->reserve(words);
  for (std::uint32_t i = 0; i < words && in->ok(); ++i) bits->push_back(in->get<std::uint64_t>());
  return true;
}

// One put/get pair for each message, in one place, so that they stay alike.
void put(ByteWriter* out, const OpenChannel& m) {
  out->put(m.name);
  out->put(m.signature);
  put_mode(out, m.mode);
  out->put(m.grace_seconds);
}
void get(ByteReader* in, OpenChannel* m) {
  m->name = in->get_string();
  m->signature = in->get_string();
  m->mode = get_mode(in);
  m->grace_seconds = in->get<double>();
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
  m->waiting = in->get<std::uint8_t>() != 0;
  m->compute_seconds = in->get<double>();
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
  if (get_bits(in, &m->bits)) m->drop = in->get<std::uint8_t>() != 0;
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
  if (get_bits(in, &m->excluded)) m->drop = in->get<std::uint8_t>() != 0;
}

void put(ByteWriter* out, const Flush& m) { out->put(m.channel); }
void get(ByteReader* in, Flush* m) { m->channel = in->get<ChannelId>(); }

void put(ByteWriter* out, const Leave& m) {
  out->put(m.channel);
  out->put(static_cast<std::uint8_t>(m.holds_contribution));
}
void get(ByteReader* in, Leave* m) {
  m->channel = in->get<ChannelId>();
  m->holds_contribution = in->get<std::uint8_t>() != 0;
}

void put(ByteWriter*, const Goodbye&) {}
void get(ByteReader*, Goodbye*) {}

void put(ByteWriter* out, const Abort& m) { out->put(m.reason); }
void get(ByteReader* in, Abort* m) { m->reason = in->get_string(); }

void put(ByteWriter* out, const ChannelOpened& m) {
  out->put(m.name);
  out->put(m.channel);
}
void get(ByteReader* in, ChannelOpened* m) {
  m->name = in->get_string();
  m->channel = in->get<ChannelId>();
}

void put(ByteWriter* out, const ChannelRejected& m) {
  out->put(m.name);
  out->put(m.reason);
}
void get(ByteReader* in, ChannelRejected* m) {
  m->name = in->get_string();
  m->reason = in->get_string();
}

void put(ByteWriter* out, const Members& m) {
  out->put(m.channel);
  put_bits(out, m.bits);
  put_bits(out, m.excluded);
  out->put(static_cast<std::uint8_t>(m.drop));
}
void get(ByteReader* in, Members* m) {
  m->channel = in->get<ChannelId>();
  if (get_bits(in, &m->bits) && get_bits(in, &m->excluded)) {
    m->drop = in->get<std::uint8_t>() != 0;
  }
}

void put(ByteWriter* out, const Activate& m) {
  out->put(m.channel);
  out->put(m.round);
  put_mode(out, m.mode);
  out->put(static_cast<std::uint8_t>(m.flush));
}
void get(ByteReader* in, Activate* m) {
  m->channel = in->get<ChannelId>();
  m->round = in->get<std::uint64_t>();
  m->mode = get_mode(in);
  m->flush = in->get<std::uint8_t>() != 0;
}

void put(ByteWriter* out, const PeerLost& m) {
  out->put(m.peer);
  out->put(m.reason);
}
void get(ByteReader* in, PeerLost* m) {
  m->peer = in->get<std::int32_t>();
  m->reason = in->get_string();
}

void put(ByteWriter* out, const Aborted& m) {
  out->put(m.peer);
  out->put(m.reason);
}
void get(ByteReader* in, Aborted* m) {
  m->peer = in->get<std::int32_t>();
  m->reason = in->get_string();
}

void put(ByteWriter*, const StillTraining&) {}
void get(ByteReader*, StillTraining*) {}
void put(ByteWriter*, const AllGone&) {}
void get(ByteReader*, AllGone*) {}

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

void encode(const Message& message, std::vector<std::uint8_t>* buffer) {
  ByteWriter out(buffer);
  out.put(kWireVersion);
  out.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&out](const auto& m) { put(&out, m); }, message);
}

std::optional<Message> decode(const std::uint8_t* data, std::size_t size) {
  ByteReader in(data, size);
  if (in.get<std::uint8_t>() != kWireVersion) return std::nullopt;
  const auto index = in.get<std::uint8_t>();
  if (!in.ok()) return std::nullopt;
  return decode_alternative(index, &in);
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/objections.h"

#include <type_traits>

namespace hvd_partial {
namespace {

template <typename T, typename... Kinds>
constexpr bool kIsOneOf = (std::is_same_v<T, Kinds> || ...);

// Kinds that never go the other way.
template <typename T>
constexpr bool kFromRank = kIsOneOf<T, OpenChannel, Call, SetMode, Exclude, Decide, Flush, Leave,
                                    Goodbye, Abort, Held, Frozen>;
template <typename T>
constexpr bool kFromCoordinator =
    kIsOneOf<T, ChannelOpened, ChannelRejected, Members, Activate, PeerLost, Aborted, StillTraining,
             AllGone, StallTold, Freeze, Thaw, Defer, Deliver>;

std::string objection_to_mode(const Mode& mode, int size) {
  if (valid(mode, size)) return {};
  return "its mode " + to_string(mode) + " does not fit " + std::to_string(size) + " ranks";
}

std::string objection_to_ranks(const std::vector<std::uint64_t>& bits, int size) {
  const auto words = static_cast<std::size_t>((size + 63) / 64);
  if (bits.size() != words) {
    return "it has " + std::to_string(bits.size()) + " words of ranks, expected " +
           std::to_string(words);
  }
  const int in_last = size % 64;
  if (in_last != 0 && (bits.back() >> in_last) != 0) {
    return "it names ranks that do not exist in a job of " + std::to_string(size);
  }
  return {};
}

// Nobody is excluded by no words at all.
std::string objection_to_excluded(const std::vector<std::uint64_t>& bits, int size) {
  return bits.empty() ? std::string() : objection_to_ranks(bits, size);
}

std::string objection_to_members(const Members& message, int rank, int size) {
  if (std::string why = objection_to_ranks(message.bits, size); !why.empty()) return why;
  if (!has_rank(message.bits, rank) && message.keep_from == kNoRound) {
    return "it leaves out the rank it was sent to, and keeps nothing for it";
  }
  return objection_to_excluded(message.excluded, size);
}

std::string objection_to_delivery(const Deliver& message, int rank, int size) {
  if (message.from >= size || message.to >= size || message.from == message.to) {
    return "rank " + std::to_string(message.from) + " cannot give results to rank " +
           std::to_string(message.to) + " in a job of " + std::to_string(size);
  }
  return message.from == rank || message.to == rank ? "" : "it is about other ranks";
}

template <typename T>
constexpr const char* kName = "message of a kind without name";
template <>
constexpr const char* kName<OpenChannel> = "OpenChannel";
template <>
constexpr const char* kName<Call> = "Call";
template <>
constexpr const char* kName<SetMode> = "SetMode";
template <>
constexpr const char* kName<Exclude> = "Exclude";
template <>
constexpr const char* kName<Decide> = "Decide";
template <>
constexpr const char* kName<Flush> = "Flush";
template <>
constexpr const char* kName<Leave> = "Leave";
template <>
constexpr const char* kName<Goodbye> = "Goodbye";
template <>
constexpr const char* kName<Abort> = "Abort";
template <>
constexpr const char* kName<ChannelOpened> = "ChannelOpened";
template <>
constexpr const char* kName<ChannelRejected> = "ChannelRejected";
template <>
constexpr const char* kName<Members> = "Members";
template <>
constexpr const char* kName<Activate> = "Activate";
template <>
constexpr const char* kName<PeerLost> = "PeerLost";
template <>
constexpr const char* kName<Aborted> = "Aborted";
template <>
constexpr const char* kName<StillTraining> = "StillTraining";
template <>
constexpr const char* kName<AllGone> = "AllGone";
template <>
constexpr const char* kName<Held> = "Held";
template <>
constexpr const char* kName<StallTold> = "StallTold";
template <>
constexpr const char* kName<Frozen> = "Frozen";
template <>
constexpr const char* kName<Freeze> = "Freeze";
template <>
constexpr const char* kName<Thaw> = "Thaw";
template <>
constexpr const char* kName<Defer> = "Defer";
template <>
constexpr const char* kName<Deliver> = "Deliver";

}  // namespace

std::string objection_of_coordinator(const Message& message, int size) {
  return std::visit(
      [size](const auto& m) -> std::string {
        using T = std::decay_t<decltype(m)>;
        if constexpr (kFromCoordinator<T>) return "only rank 0 sends it";
        if constexpr (kIsOneOf<T, OpenChannel, SetMode>) return objection_to_mode(m.mode, size);
        if constexpr (kIsOneOf<T, Exclude>) return objection_to_excluded(m.bits, size);
        if constexpr (kIsOneOf<T, Decide>) {
          std::string why = objection_to_mode(m.mode, size);
          return why.empty() ? objection_to_excluded(m.excluded, size) : why;
        }
        return {};
      },
      message);
}

std::string objection_of_rank(const Message& message, int rank, int size) {
  return std::visit(
      [rank, size](const auto& m) -> std::string {
        using T = std::decay_t<decltype(m)>;
        if constexpr (kFromRank<T>) return "only rank 0 gets it";
        if constexpr (kIsOneOf<T, Members>) return objection_to_members(m, rank, size);
        if constexpr (kIsOneOf<T, Deliver>) return objection_to_delivery(m, rank, size);
        if constexpr (kIsOneOf<T, Activate>) return objection_to_mode(m.mode, size);
        if constexpr (kIsOneOf<T, PeerLost, Aborted>) {
          if (m.peer < 0 || m.peer >= size) {
            return "it names rank " + std::to_string(m.peer) + " of " + std::to_string(size);
          }
        }
        if constexpr (kIsOneOf<T, ChannelOpened>) {
          if (m.channel == kAllChannels) return "it gives the channel a number that is reserved";
        }
        return {};
      },
      message);
}

std::string describe_kind(const Message& message) {
  return std::visit([](const auto& m) { return kName<std::decay_t<decltype(m)>>; }, message);
}

}  // namespace hvd_partial

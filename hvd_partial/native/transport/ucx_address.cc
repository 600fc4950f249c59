// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/ucx_address.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/bytes.h"

namespace hvd_partial {
namespace {

// These two stay where they are in every version.
constexpr std::uint32_t kMagic = 0x48564455;  // "HVDU"
constexpr std::uint32_t kVersion = 2;

// A UCX address has some hundred bytes for each network device.
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

// FNV-1a: a truncated or mixed-up address must not reach UCX, which trusts it.
std::uint64_t checksum(const std::uint8_t* data, std::size_t size) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 1099511628211ULL;
  return hash;
}

std::string to_string(const std::vector<std::uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

std::vector<std::uint8_t> encode(const UcxAddress& address) {
  std::vector<std::uint8_t> bytes;
  ByteWriter writer(&bytes);
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(address.rank);
  writer.put(address.size);
  for (const std::uint8_t byte : address.secret.token) writer.put(byte);
  writer.put(address.secret.tag_mask);
  writer.put(to_string(address.control));
  writer.put(to_string(address.bulk));
  writer.put(checksum(bytes.data(), bytes.size()));
  return bytes;
}

Status decode_address(int rank, int size, int from, const std::vector<std::uint8_t>& bytes,
                      UcxAddress* address) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    return Status(code, "rank " + std::to_string(rank) + ": the address of rank " +
                            std::to_string(from) + " " + why);
  };
  const std::string length = "(" + std::to_string(bytes.size()) + " bytes) ";
  ByteReader reader(bytes.data(), std::min(bytes.size(), kMaxBytes));
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint32_t>();
  if (!reader.ok() || magic != kMagic) {
    return refuse(ErrorCode::kInvalidArgument,
                  length +
                      "is not an address of this transport: does `exchange` return what every rank "
                      "passed in, in the order of ranks?");
  }
  if (version != kVersion) {
    return refuse(ErrorCode::kMismatch, "has version " + std::to_string(version) + ", expected " +
                                            std::to_string(kVersion) +
                                            ": install the same hvd_partial on all ranks");
  }
  address->rank = reader.get<std::int32_t>();
  address->size = reader.get<std::int32_t>();
  for (std::uint8_t& byte : address->secret.token) byte = reader.get<std::uint8_t>();
  address->secret.tag_mask = reader.get<std::uint64_t>();
  const std::string control = reader.get_string();
  const std::string bulk = reader.get_string();
  const auto sum = reader.get<std::uint64_t>();
  if (!reader.finished() || bytes.size() > kMaxBytes || control.empty() || bulk.empty() ||
      sum != checksum(bytes.data(), bytes.size() - sizeof(sum))) {
    return refuse(ErrorCode::kInvalidArgument, length + "is damaged or incomplete");
  }
  if (address->rank != from || address->size != size) {
    return refuse(ErrorCode::kMismatch, "comes from rank " + std::to_string(address->rank) +
                                            " of " + std::to_string(address->size) + ", expected " +
                                            std::to_string(from) + " of " + std::to_string(size));
  }
  address->control.assign(control.begin(), control.end());
  address->bulk.assign(bulk.begin(), bulk.end());
  return {};
}

}  // namespace hvd_partial

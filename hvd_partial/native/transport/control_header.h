// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_CONTROL_HEADER_H_
#define HVD_PARTIAL_TRANSPORT_CONTROL_HEADER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/job_secret.h"

namespace hvd_partial {

// Before every control message. UCX does not say which connection a message
// came over, and lets anybody connect: so each message proves by itself that it
// belongs to the job, before anything else in it counts.
struct ControlHeader {
  static constexpr std::uint32_t kMagic = 0x48564443;  // "HVDC"
  static constexpr std::uint32_t kVersion = 2;

  std::uint32_t magic = kMagic;  // these two stay where they are in every version
  std::uint32_t version = kVersion;
  std::array<std::uint8_t, 16> token{};
  std::uint32_t from = 0;
  std::uint32_t size = 0;      // of the job
  std::uint64_t sequence = 0;  // counts the messages of a pair from 0
};
static_assert(sizeof(ControlHeader) == 40, "no padding goes on the wire");

// Reads the header of a message that rank `rank` got. Empty if it is of this
// job; else what turns its sender away, for people.
std::string read_header(const void* bytes, std::size_t bytes_size, const JobSecret& secret,
                        int rank, int size, ControlHeader* header);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_CONTROL_HEADER_H_

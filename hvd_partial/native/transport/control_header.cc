// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/control_header.h"

#include <algorithm>
#include <cstring>

namespace hvd_partial {

std::string read_header(const void* bytes, std::size_t bytes_size, const JobSecret& secret,
                        int rank, int size, ControlHeader* header) {
  ControlHeader got;
  got.magic = got.version = 0;
  if (bytes_size > 0) std::memcpy(&got, bytes, std::min(bytes_size, sizeof(got)));
  if (got.magic != ControlHeader::kMagic) return "it is not a message of hvd_partial";
  if (got.version != ControlHeader::kVersion) {
    return "it comes from another version of hvd_partial (messages of version " +
           std::to_string(got.version) + ", here " + std::to_string(ControlHeader::kVersion) + ")";
  }
  if (bytes_size != sizeof(got)) return "its header has another length";
  if (!same_token(got.token, secret.token)) return "it comes from another job";
  // Whoever knows the secret is one of us, and broken.
  if (got.size != static_cast<std::uint32_t>(size) || got.from >= got.size ||
      got.from == static_cast<std::uint32_t>(rank)) {
    return "it says it comes from rank " + std::to_string(got.from) + " of " +
           std::to_string(got.size) + ", which is none of the others of " + std::to_string(size);
  }
  *header = got;
  return {};
}

}  // namespace hvd_partial

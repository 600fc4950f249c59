// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_JOB_SECRET_H_
#define HVD_PARTIAL_TRANSPORT_JOB_SECRET_H_

#include <array>
#include <cstdint>

#include "base/status.h"

namespace hvd_partial {

// Random bits that the ranks of one job share and nobody else knows. Rank 0
// draws them; the others find them in its address.
struct JobSecret {
  std::array<std::uint8_t, 16> token{};  // in the header of every control message
  std::uint64_t tag_mask = 0;            // hides the tags of bulk transfers

  static Status draw(JobSecret* secret);
};

// Takes the same time wherever the two differ.
bool same_token(const std::array<std::uint8_t, 16>& a, const std::array<std::uint8_t, 16>& b);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_JOB_SECRET_H_

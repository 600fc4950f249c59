// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_UCX_ADDRESS_H_
#define HVD_PARTIAL_TRANSPORT_UCX_ADDRESS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "transport/job_secret.h"

namespace hvd_partial {

// What a rank tells the others so that they can reach it, and that they belong
// together. It travels over Horovod, or whatever the caller exchanges it with.
struct UcxAddress {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  JobSecret secret;  // rank 0's is the job's; the others leave it empty
  std::vector<std::uint8_t> control;
  std::vector<std::uint8_t> bulk;
};

std::vector<std::uint8_t> encode(const UcxAddress& address);

// Rank `rank` reads what is said to be the address of rank `from`; the error
// says what is wrong with it.
Status decode_address(int rank, int size, int from, const std::vector<std::uint8_t>& bytes,
                      UcxAddress* address);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_UCX_ADDRESS_H_

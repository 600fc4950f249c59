// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>

#include "job.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hvd_partial::run_job(data, size);
  return 0;
}

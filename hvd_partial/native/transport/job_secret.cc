// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/job_secret.h"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

namespace hvd_partial {
namespace {

Status fill(void* bytes, std::size_t size) {
  auto* next = static_cast<std::uint8_t*>(bytes);
  while (size > 0) {
    const ssize_t got = getrandom(next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return Status(ErrorCode::kTransport,
                    std::string("the kernel gives no random bytes for the job's secret: ") +
                        std::strerror(errno));
    }
    next += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace

Status JobSecret::draw(JobSecret* secret) {
  if (Status status = fill(secret->token.data(), secret->token.size()); !status.ok()) return status;
  return fill(&secret->tag_mask, sizeof(secret->tag_mask));
}

bool same_token(const std::array<std::uint8_t, 16>& a, const std::array<std::uint8_t, 16>& b) {
  volatile std::uint8_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<std::uint8_t>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace hvd_partial

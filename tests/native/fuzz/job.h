// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TESTS_FUZZ_JOB_H_
#define HVD_PARTIAL_TESTS_FUZZ_JOB_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/messages.h"

namespace hvd_partial {

// A small job of real engines without threads (Coordinator, Progress, Channel
// over the in-process transport), told by a string of bytes what happens: users
// call, time passes, and peers say whatever the bytes say.
//
// Aborts if a message that cannot be right does not end in an error of its
// receiver, or if the engines do not come to rest.
void run_job(const std::uint8_t* script, std::size_t size);

// Writes such strings.
class JobScript {
 public:
  explicit JobScript(std::uint8_t variant) : bytes_{variant} {}

  JobScript& say(int from, int to, const Message& message);
  JobScript& deposit(int rank) { return act(1, rank); }
  JobScript& take(int rank) { return act(2, rank); }
  JobScript& flush(int rank) { return act(3, rank); }
  JobScript& leave(int rank) { return act(4, rank); }
  JobScript& goodbye(int rank) { return act(5, rank); }
  JobScript& pass_time() { return act(6, 0); }

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  JobScript& act(std::uint8_t what, int rank);

  std::vector<std::uint8_t> bytes_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_FUZZ_JOB_H_

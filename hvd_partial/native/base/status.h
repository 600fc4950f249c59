// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_BASE_STATUS_H_
#define HVD_PARTIAL_BASE_STATUS_H_

#include <string>
#include <utility>

namespace hvd_partial {

// Values are part of the C ABI (hvdp_status in capi/hvd_partial.h).
enum class ErrorCode : int {
  kOk = 0,
  kInvalidArgument = 1,
  kMismatch = 2,      // ranks disagree about a channel
  kPeerLost = 3,      // a process died
  kAborted = 4,       // a rank gave up and said why
  kNotConnected = 5,  // used before connect() or after close()
  kTimeout = 6,
  kTransport = 7,
  kInternal = 8,
};

// The outcome of an operation: ok, or a code with a text for people that
// names the rank and, where there is one, the channel and round.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == ErrorCode::kOk; }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_BASE_STATUS_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "tensorflow/op_status.h"

#include "tensorflow/core/platform/errors.h"

namespace hvd_partial {
namespace {

const char* name_of(std::int32_t code) {
  switch (code) {
    case HVDP_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case HVDP_MISMATCH:
      return "MISMATCH";
    case HVDP_PEER_LOST:
      return "PEER_LOST";
    case HVDP_ABORTED:
      return "ABORTED";
    case HVDP_NOT_CONNECTED:
      return "NOT_CONNECTED";
    case HVDP_TIMEOUT:
      return "TIMEOUT";
    case HVDP_TRANSPORT:
      return "TRANSPORT";
    default:
      return "INTERNAL";
  }
}

}  // namespace

tensorflow::Status to_tensorflow(std::int32_t code) {
  if (code == HVDP_OK) return tensorflow::OkStatus();
  const std::string text = std::string("hvd_partial [") + name_of(code) + "]: " + hvdp_last_error();
  switch (code) {
    case HVDP_INVALID_ARGUMENT:
    case HVDP_MISMATCH:
      return tensorflow::errors::InvalidArgument(text);
    case HVDP_NOT_CONNECTED:
      return tensorflow::errors::FailedPrecondition(text);
    case HVDP_TIMEOUT:
      return tensorflow::errors::DeadlineExceeded(text);
    case HVDP_PEER_LOST:
    case HVDP_ABORTED:
    case HVDP_TRANSPORT:
      return tensorflow::errors::Unknown(text, " (HorovodAllreduce)");
    default:
      return tensorflow::errors::Internal(text);
  }
}

tensorflow::Status find_channel(const std::string& name, hvdp_channel** channel) {
  *channel = hvdp_channel_find(name.c_str());
  if (*channel != nullptr) return tensorflow::OkStatus();
  if (hvdp_connected() == 0) {
    return tensorflow::errors::FailedPrecondition(
        "hvd_partial [NOT_CONNECTED]: channel '", name,
        "': the engine is not connected; call hvd_partial.tensorflow.init() before training, and "
        "not after shutdown()");
  }
  return tensorflow::errors::FailedPrecondition("hvd_partial [NOT_CONNECTED]: rank ", hvdp_rank(),
                                                ": there is no channel '", name,
                                                "'; was this graph made by another process?");
}

}  // namespace hvd_partial

// What this library was built for: "2.18.1".
extern "C" HVDP_EXPORT const char* hvdp_tensorflow_version(void) {
  return HVD_PARTIAL_TENSORFLOW_VERSION;
}

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TENSORFLOW_OP_STATUS_H_
#define HVD_PARTIAL_TENSORFLOW_OP_STATUS_H_

#include <cstdint>
#include <string>

#include "capi/hvd_partial.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hvd_partial {

// Turns a status of the C ABI into one of TensorFlow, with the text of
// hvdp_last_error(), so it must be called by the thread that got the error.
//
// Where the job itself has failed (a peer lost, a rank that gave up, the
// transport) it is UNKNOWN and the text contains "HorovodAllreduce": that is
// how Horovod's elastic loop recognises what it can recover from. The code's
// name in square brackets lets Python raise the exact class.
tensorflow::Status to_tensorflow(std::int32_t code);

// The channel, or an error that says what to do.
tensorflow::Status find_channel(const std::string& name, hvdp_channel** channel);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TENSORFLOW_OP_STATUS_H_

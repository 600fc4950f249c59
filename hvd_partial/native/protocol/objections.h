// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PROTOCOL_OBJECTIONS_H_
#define HVD_PARTIAL_PROTOCOL_OBJECTIONS_H_

#include <string>

#include "protocol/messages.h"

namespace hvd_partial {

// What is wrong with a message that came over the wire, for people; empty if
// nothing is. These two know the job's size; what depends on the receiver's
// state, the receiver looks at.

// ... which the coordinator got.
std::string objection_of_coordinator(const Message& message, int size);
// ... which rank `rank` got from the coordinator.
std::string objection_of_rank(const Message& message, int rank, int size);

// "Call" and the like.
std::string describe_kind(const Message& message);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PROTOCOL_OBJECTIONS_H_

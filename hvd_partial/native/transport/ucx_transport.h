// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_UCX_TRANSPORT_H_
#define HVD_PARTIAL_TRANSPORT_UCX_TRANSPORT_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/transport.h"

namespace hvd_partial {

// Between processes, over UCX: shared memory inside a host, the network
// between hosts. What it adds to the contract in transport.h:
//
// - Bulk tags use their low 48 bits only; a transfer with a larger tag fails.
//   There are at most 65536 ranks.
// - Both sides of a bulk transfer must give the same size; a receive that gets
//   another number of bytes fails with kMismatch.
// - A transfer with a peer that is known to be lost fails at once. One that
//   was under way then may stay unfinished until cancel_all().
// - cancel_all() is final: bulk transfers started later fail with kAborted
//   (messages of the abandoned ones could arrive in place of theirs). Control
//   messages go on.
// - A peer is noticed to be lost by rank 0, or by everybody if it was rank 0:
//   only these pairs keep a connection that reports it. A peer's close() looks
//   the same as its death.
// - Control messages work between any two ranks, connections are made when
//   needed.
//
// - Messages of strangers (another job, another version) do not count: see
//   control_header.h and UcxBulk.
//
// Environment: interfaces.h says which variables restrict the network
// interfaces, default all. UCX's own variables (UCX_*) win over every default
// chosen here.
//
// Returns null, and why in `status`, if UCX finds nothing to talk over.
std::unique_ptr<Transport> make_ucx_transport(int rank, int size, Status* status);

// Transports and devices that UCX finds on this machine ("tcp/eth0"), one a
// line, control connection first. Text that begins with "error: " if none.
std::string ucx_transport_names();

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_UCX_TRANSPORT_H_

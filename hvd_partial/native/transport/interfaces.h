// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_INTERFACES_H_
#define HVD_PARTIAL_TRANSPORT_INTERFACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hvd_partial {

struct Interface {
  std::string name;
  std::vector<std::uint32_t> ipv4;  // host byte order
};

std::vector<Interface> existing_interfaces();

// The interfaces that the environment restricts this job to, with commas
// between, or an empty text: all. An error if it names none that exists. The
// first of these that is set counts:
//
//   HVD_PARTIAL_NETWORK_INTERFACES  names, exactly; also RDMA ports (mlx5_0:1)
//   UCX_NET_DEVICES                 UCX reads it by itself: all, as far as this goes
//   HOROVOD_GLOO_IFACE              set by horovodrun (Gloo)
//   OMPI_MCA_btl_tcp_if_include     set by horovodrun --network-interfaces (Open MPI):
//                                   names or networks (10.0.0.0/8)
//   NCCL_SOCKET_IFNAME              set by horovodrun --network-interfaces; NCCL's
//                                   rules: beginnings of names, "=" exactly, "^" all but
Status chosen_interfaces(const std::vector<Interface>& existing, std::string* chosen);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_INTERFACES_H_

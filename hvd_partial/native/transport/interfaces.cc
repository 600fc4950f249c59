// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

namespace hvd_partial {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) {
    const std::size_t begin = item.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    items.push_back(item.substr(begin, item.find_last_not_of(' ') - begin + 1));
  }
  return items;
}

bool begins_with(const std::string& text, const std::string& beginning) {
  return text.compare(0, beginning.size(), beginning) == 0;
}

// "10.1.0.0/16"
bool is_in_network(const Interface& interface, const std::string& network) {
  const std::size_t slash = network.find('/');
  if (slash == std::string::npos) return false;
  in_addr address{};
  int bits = -1;
  const char* end = network.data() + network.size();
  const auto parsed = std::from_chars(network.data() + slash + 1, end, bits);
  if (parsed.ptr != end || bits < 0 || bits > 32 ||
      inet_pton(AF_INET, network.substr(0, slash).c_str(), &address) != 1) {
    return false;
  }
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  return std::any_of(interface.ipv4.begin(), interface.ipv4.end(), [&](std::uint32_t ip) {
    return (ip & mask) == (ntohl(address.s_addr) & mask);
  });
}

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : between) + name;
  return text;
}

std::vector<std::string> nccl_means(const std::vector<Interface>& existing, std::string list) {
  const char rule = list.empty() ? '\0' : list.front();
  if (rule == '^' || rule == '=') list.erase(0, 1);
  const std::vector<std::string> items = split(list);
  std::vector<std::string> names;
  for (const Interface& interface : existing) {
    const bool listed = std::any_of(items.begin(), items.end(), [&](const std::string& item) {
      return rule == '=' ? interface.name == item : begins_with(interface.name, item);
    });
    if (listed != (rule == '^')) names.push_back(interface.name);
  }
  return names;
}

Status not_there(const char* variable, const std::string& item,
                 const std::vector<Interface>& existing) {
  std::vector<std::string> names;
  for (const Interface& interface : existing) names.push_back(interface.name);
  return Status(ErrorCode::kInvalidArgument, std::string(variable) +
                                                 " names the network interface '" + item +
                                                 "', but this host has: " + joined(names, ", ") +
                                                 "; HVD_PARTIAL_NETWORK_INTERFACES overrides it");
}

// Every interface that an item of the list means, once.
template <typename Means>
Status choose(const char* variable, const char* list, const std::vector<Interface>& existing,
              Means means, std::string* chosen) {
  std::vector<std::string> names;
  for (const std::string& item : split(list)) {
    bool found = item.find(':') != std::string::npos;  // an RDMA port: UCX knows
    if (found) names.push_back(item);
    for (const Interface& interface : existing) {
      if (!means(interface, item)) continue;
      found = true;
      if (std::find(names.begin(), names.end(), interface.name) == names.end()) {
        names.push_back(interface.name);
      }
    }
    if (!found) return not_there(variable, item, existing);
  }
  *chosen = joined(names, ",");
  return {};
}

const char* value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::vector<Interface> existing_interfaces() {
  std::vector<Interface> all;
  if (struct if_nameindex* list = if_nameindex(); list != nullptr) {
    for (const struct if_nameindex* entry = list; entry->if_index != 0; ++entry) {
      all.push_back({entry->if_name, {}});
    }
    if_freenameindex(list);
  }
  ifaddrs* addresses = nullptr;
  if (getifaddrs(&addresses) != 0) return all;
  for (const ifaddrs* entry = addresses; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    for (Interface& interface : all) {
      if (interface.name != entry->ifa_name) continue;
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      interface.ipv4.push_back(ntohl(address->sin_addr.s_addr));
    }
  }
  freeifaddrs(addresses);
  return all;
}

Status chosen_interfaces(const std::vector<Interface>& existing, std::string* chosen) {
  chosen->clear();
  const auto is_named = [](const Interface& interface, const std::string& item) {
    return interface.name == item;
  };
  const auto mpi_means = [](const Interface& interface, const std::string& item) {
    return interface.name == item || is_in_network(interface, item);
  };
  const char* variable = "HVD_PARTIAL_NETWORK_INTERFACES";
  if (const char* list = value_of(variable)) {
    return choose(variable, list, existing, is_named, chosen);
  }
  // Launchers set the others by themselves: UCX's own variable says more.
  if (value_of("UCX_NET_DEVICES") != nullptr) return {};
  variable = "HOROVOD_GLOO_IFACE";
  if (const char* list = value_of(variable)) {
    return choose(variable, list, existing, is_named, chosen);
  }
  variable = "OMPI_MCA_btl_tcp_if_include";
  if (const char* list = value_of(variable)) {
    return choose(variable, list, existing, mpi_means, chosen);
  }
  variable = "NCCL_SOCKET_IFNAME";
  if (const char* list = value_of(variable)) {
    const std::vector<std::string> names = nccl_means(existing, list);
    if (names.empty()) return not_there(variable, list, existing);
    *chosen = joined(names, ",");
  }
  return {};
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_LOST_PEERS_H_
#define HVD_PARTIAL_TRANSPORT_LOST_PEERS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace hvd_partial {

// Which peers are lost, and whom the listener has yet to hear about. A peer is
// reported once, however often and wherever it is noticed.
class LostPeers {
 public:
  explicit LostPeers(int size) : lost_(static_cast<std::size_t>(size)) {}

  void add(int peer, std::string reason) {
    if (contains(peer)) return;
    lost_[static_cast<std::size_t>(peer)] = true;
    unreported_.emplace_back(peer, std::move(reason));
  }
  bool contains(int peer) const { return lost_[static_cast<std::size_t>(peer)]; }

  bool has_unreported() const { return !unreported_.empty(); }
  std::vector<std::pair<int, std::string>> take_unreported() {
    return std::exchange(unreported_, {});
  }

 private:
  std::vector<bool> lost_;
  std::vector<std::pair<int, std::string>> unreported_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_LOST_PEERS_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_BUFFER_POOL_H_
#define HVD_PARTIAL_ENGINE_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "collective/tensor_layout.h"

namespace hvd_partial {

// The buffers of one channel, allocated once. They change hands without being
// copied: send buffer, then reduced in place, then result, then free again.
class BufferPool {
 public:
  // Throws std::bad_alloc.
  BufferPool(std::size_t bytes, std::size_t count) {
    constexpr std::size_t kAlignment = TensorLayout::kAlignment;
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    free_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      auto* memory = static_cast<std::uint8_t*>(
          std::aligned_alloc(kAlignment, rounded > 0 ? rounded : kAlignment));
      if (memory == nullptr) throw std::bad_alloc();
      // Padding between tensors is reduced along with them: it must be zero.
      std::memset(memory, 0, rounded);
      buffers_.emplace_back(memory, &std::free);
      free_.push_back(memory);
    }
  }

  std::uint8_t* take() {
    std::uint8_t* buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void give_back(std::uint8_t* buffer) { free_.push_back(buffer); }
  std::size_t available() const { return free_.size(); }

 private:
  std::vector<std::unique_ptr<std::uint8_t, decltype(&std::free)>> buffers_;
  std::vector<std::uint8_t*> free_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_BUFFER_POOL_H_

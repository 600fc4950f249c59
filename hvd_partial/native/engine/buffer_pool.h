// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_BUFFER_POOL_H_
#define HVD_PARTIAL_ENGINE_BUFFER_POOL_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "collective/tensor_layout.h"

namespace hvd_partial {

// The buffers of one channel, allocated when it is opened (and a few more when a
// reduction is deferred). They change hands without being
// copied: send buffer, then reduced in place, then result, then free again.
class BufferPool {
 public:
  // Throws std::bad_alloc.
  BufferPool(std::size_t bytes, std::size_t count) {
    constexpr std::size_t kAlignment = TensorLayout::kAlignment;
    rounded_ = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    grow(count);
  }

  // Throws std::bad_alloc.
  void grow(std::size_t count) {
    buffers_.reserve(buffers_.size() + count);
    free_.reserve(buffers_.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      buffers_.push_back(allocate(rounded_));
      // Padding between tensors is reduced along with them: it must be zero.
      // And the memory is there from now on, not when a round first needs it.
      std::memset(buffers_.back().get(), 0, rounded_);
      free_.push_back(buffers_.back().get());
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
  struct Release {
    std::size_t mapped_bytes;  // 0: from aligned_alloc
    void operator()(std::uint8_t* memory) const {
      if (mapped_bytes > 0) {
        munmap(memory, mapped_bytes);
      } else {
        std::free(memory);
      }
    }
  };
  using Buffer = std::unique_ptr<std::uint8_t, Release>;

  // Large ones go back to the system when they are released: glibc's
  // aligned_alloc hardly uses freed memory again (before 2.38), so that a
  // process which opens and closes engines would grow with each.
  static Buffer allocate(std::size_t bytes) {
    constexpr std::size_t kMapped = std::size_t{64} << 10;
    if (bytes < kMapped) {
      auto* memory =
          static_cast<std::uint8_t*>(std::aligned_alloc(TensorLayout::kAlignment, bytes));
      if (memory == nullptr) throw std::bad_alloc();
      return Buffer(memory, Release{0});
    }
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return Buffer(static_cast<std::uint8_t*>(memory), Release{bytes});
  }

  std::size_t rounded_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::uint8_t*> free_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_BUFFER_POOL_H_

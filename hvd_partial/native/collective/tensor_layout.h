// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_COLLECTIVE_TENSOR_LAYOUT_H_
#define HVD_PARTIAL_COLLECTIVE_TENSOR_LAYOUT_H_

#include <cstddef>
#include <vector>

#include "collective/dtype.h"

namespace hvd_partial {

struct TensorSpec {
  DType dtype;
  std::size_t elements;
};

// How a list of tensors lies in one flat buffer: grouped by dtype into
// segments, each tensor at kAlignment, so that a reduction runs over long
// arrays and any kAlignment boundary is an element boundary of its segment.
class TensorLayout {
 public:
  static constexpr std::size_t kAlignment = 64;

  struct Segment {
    DType dtype;
    std::size_t begin;  // bytes from the start of the buffer
    std::size_t end;
  };

  TensorLayout() = default;
  explicit TensorLayout(std::vector<TensorSpec> tensors);

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // Byte offset of tensor `i`.
  std::size_t offset(std::size_t i) const { return offsets_[i]; }
  // Contiguous, in order, covering [0, bytes()).
  const std::vector<Segment>& segments() const { return segments_; }
  // A multiple of kAlignment.
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<std::size_t> offsets_;
  std::vector<Segment> segments_;
  std::size_t bytes_ = 0;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_COLLECTIVE_TENSOR_LAYOUT_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "collective/tensor_layout.h"

#include <utility>

namespace hvd_partial {

namespace {

constexpr DType kSegmentOrder[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                   DType::kBFloat16, DType::kInt32,   DType::kInt64};

constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + TensorLayout::kAlignment - 1) / TensorLayout::kAlignment *
         TensorLayout::kAlignment;
}

}  // namespace

TensorLayout::TensorLayout(std::vector<TensorSpec> tensors)
    : tensors_(std::move(tensors)), offsets_(tensors_.size()) {
  for (const DType dtype : kSegmentOrder) {
    const std::size_t begin = bytes_;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].dtype != dtype) continue;
      offsets_[i] = bytes_;
      bytes_ += align_up(tensors_[i].elements * dtype_size(dtype));
    }
    if (bytes_ > begin) segments_.push_back({dtype, begin, bytes_});
  }
}

}  // namespace hvd_partial

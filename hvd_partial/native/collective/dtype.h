// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_COLLECTIVE_DTYPE_H_
#define HVD_PARTIAL_COLLECTIVE_DTYPE_H_

#include <cstddef>

namespace hvd_partial {

// Values are part of the C ABI and of channel signatures.
enum class DType : int {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt32 = 4,
  kInt64 = 5,
};

constexpr std::size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) { return dtype != DType::kInt32 && dtype != DType::kInt64; }

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_COLLECTIVE_DTYPE_H_

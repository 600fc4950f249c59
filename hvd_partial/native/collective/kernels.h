// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_COLLECTIVE_KERNELS_H_
#define HVD_PARTIAL_COLLECTIVE_KERNELS_H_

#include <cstddef>

#include "collective/dtype.h"
#include "collective/tensor_layout.h"

namespace hvd_partial {

// f16 and bf16 are computed in f32 and rounded to nearest even. Integers wrap.

// destination[i] += source[i]
void add(DType dtype, void* destination, const void* source, std::size_t elements);
// destination[i] = source[i] * scale. Integers: only scale 1 (a plain copy).
void copy_scaled(DType dtype, void* destination, const void* source, std::size_t elements,
                 double scale);
// destination[i] += source[i] * scale. Integers: only scale 1.
void add_scaled(DType dtype, void* destination, const void* source, std::size_t elements,
                double scale);
// destination[i] = source[i] / divisor. Integers: only divisor 1. Dividing, not multiplying by a
// reciprocal, so that the result is the correctly rounded mean.
void copy_divided(DType dtype, void* destination, const void* source, std::size_t elements,
                  double divisor);
// True for integers.
bool all_finite(DType dtype, const void* source, std::size_t elements);

// add() over the bytes [begin, end) of a flat buffer, both multiples of
// TensorLayout::kAlignment; `source` holds just that range.
void add_range(const TensorLayout& layout, void* buffer, std::size_t begin, std::size_t end,
               const void* source);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_COLLECTIVE_KERNELS_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// The kernels as an old processor, or one of another kind, runs them: built
// again under another name, without the code that needs AVX2 and F16C.

#define HVDP_BASELINE_KERNELS
#define hvd_partial hvd_partial_baseline
#include "collective/kernels.cc"
#include "collective/tensor_layout.cc"
#include "kernels_cases.h"

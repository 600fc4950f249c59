// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// The kernels as the engine uses them, with what this processor can do.

#include "kernels_cases.h"

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_PYTHON_SIMULATION_H_
#define HVD_PARTIAL_PYTHON_SIMULATION_H_

#include <pybind11/pybind11.h>

namespace hvd_partial {

// Adds `simulate`: see simulation/protocol_simulation.h.
void add_simulation(pybind11::module_* module);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_PYTHON_SIMULATION_H_

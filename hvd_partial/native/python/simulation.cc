// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "python/simulation.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "simulation/protocol_simulation.h"
#include "simulation/trace.h"

namespace py = pybind11;

namespace hvd_partial {
namespace {

py::dict run_simulation(std::int32_t ranks,
                        const std::tuple<std::int32_t, std::int32_t, std::uint64_t>& mode,
                        std::int32_t max_lag, double grace_seconds, double message_seconds,
                        double reduce_seconds, double apply_seconds, std::uint64_t contributions,
                        double compute_seconds,
                        const std::vector<std::tuple<std::int32_t, double, double>>& delays,
                        std::vector<std::vector<double>> recorded, std::uint64_t seed,
                        const py::object& progress) {
  SimulatedJob job;
  job.ranks = ranks;
  job.mode = {static_cast<ModeKind>(std::get<0>(mode)), std::get<1>(mode), std::get<2>(mode)};
  job.max_lag = max_lag;
  job.grace_seconds = grace_seconds;
  job.message_seconds = message_seconds;
  job.reduce_seconds = reduce_seconds;
  job.apply_seconds = apply_seconds;
  job.contributions = contributions;
  std::vector<DelaySource> sources;
  for (const auto& [kind, a, b] : delays) {
    sources.push_back({static_cast<DelaySource::Kind>(kind), a, b});
  }
  const Trace trace(ranks, seed, compute_seconds, std::move(sources), std::move(recorded));
  SimulatedOutcome outcome;
  Status status;
  {
    const py::gil_scoped_release without_gil;
    // What a handler of a signal raises, Ctrl-C above all, stays set in Python.
    status = simulate(
        job, trace,
        [&progress](double share) {
          const py::gil_scoped_acquire with_gil;
          if (PyErr_CheckSignals() != 0) return false;
          if (progress.is_none()) return true;
          try {
            progress(share);
          } catch (py::error_already_set& error) {
            error.restore();
            return false;
          }
          return true;
        },
        &outcome);
  }
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (!status.ok()) {
    const py::object error =
        py::module_::import("hvd_partial.errors")
            .attr("from_status")(static_cast<std::int32_t>(status.code()), status.message());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw py::error_already_set();
  }
  py::dict result;
  result["seconds"] = outcome.seconds;
  result["contributions"] = outcome.contributions;
  result["rounds_with"] = outcome.rounds_with;
  result["staleness"] = outcome.staleness;
  result["contributions_of"] = outcome.contributions_of;
  result["waiting_seconds_of"] = outcome.waiting_seconds_of;
  result["largest_lag"] = outcome.largest_lag;
  result["held_up_seconds"] = outcome.held_up_seconds;
  result["grace_seconds"] = outcome.grace_seconds;
  return result;
}

}  // namespace

void add_simulation(py::module_* module) {
  module->def("simulate", &run_simulation, py::kw_only(), py::arg("ranks"), py::arg("mode"),
              py::arg("max_lag"), py::arg("grace_seconds"), py::arg("message_seconds"),
              py::arg("reduce_seconds"), py::arg("apply_seconds"), py::arg("contributions"),
              py::arg("compute_seconds"), py::arg("delays"), py::arg("recorded"), py::arg("seed"),
              py::arg("progress"));
}

}  // namespace hvd_partial

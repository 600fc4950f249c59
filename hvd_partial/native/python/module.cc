// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// hvd_partial._engine: the C ABI for Python (and the simulation, which has a
// file of its own). Checks of arguments, defaults and everything that people
// see are in hvd_partial/engine.py; here are the calls, without the GIL where
// they take time, and with an ear for Ctrl-C where they wait.

#include <cxxabi.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "capi/hvd_partial.h"
#include "python/simulation.h"

namespace py = pybind11;

namespace {

// Between two looks for signals; a result ends a wait at once.
constexpr std::chrono::milliseconds kSignalInterval{100};
constexpr double kSignalSeconds = 0.1;

using ModeTuple = std::tuple<std::int32_t, std::int32_t, std::uint64_t>;

// Without the GIL while it lives. Where the interpreter ends meanwhile (this is
// a daemon thread then), CPython ends the thread when it wants the GIL back, by
// unwinding its stack: that would run destructors of Python objects without the
// GIL. So the thread stays here instead, until the process is gone.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      while (true) pause();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

[[noreturn]] void raise(std::int32_t status, const std::string& message) {
  const py::object error =
      py::module_::import("hvd_partial.errors").attr("from_status")(status, message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

void check(std::int32_t status) {
  if (status != HVDP_OK) raise(status, hvdp_last_error());
}

// Runs handlers of signals that have come; throws what they raise.
void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

hvdp_mode to_mode(const ModeTuple& mode) {
  return {std::get<0>(mode), std::get<1>(mode), std::get<2>(mode)};
}

ModeTuple from_mode(const hvdp_mode& mode) { return {mode.kind, mode.quorum, mode.seed}; }

py::bytes open_engine(std::int32_t rank, std::int32_t size) {
  const std::uint8_t* address = nullptr;
  std::size_t address_size = 0;
  check(hvdp_open(rank, size, &address, &address_size));
  return py::bytes(reinterpret_cast<const char*>(address), address_size);
}

void connect_engine(const std::vector<std::string>& addresses) {
  std::vector<const std::uint8_t*> data;
  std::vector<std::size_t> sizes;
  for (const std::string& address : addresses) {
    data.push_back(reinterpret_cast<const std::uint8_t*>(address.data()));
    sizes.push_back(address.size());
  }
  std::int32_t status = HVDP_OK;
  {
    const WithoutGil without_gil;
    status = hvdp_connect(data.data(), sizes.data());
  }
  check(status);
}

// Waits on a thread of its own, so that this one hears Ctrl-C: then the job is
// aborted, which ends the wait, and KeyboardInterrupt goes on.
void close_engine(double silence_seconds) {
  std::string message;
  std::future<std::int32_t> closing = std::async(std::launch::async, [&] {
    const std::int32_t status = hvdp_close(silence_seconds);
    if (status != HVDP_OK) message = hvdp_last_error();
    return status;
  });
  while (true) {
    {
      const WithoutGil without_gil;
      if (closing.wait_for(kSignalInterval) == std::future_status::ready) break;
    }
    if (PyErr_CheckSignals() == 0) continue;
    {
      const py::error_scope interrupt;  // kept while we wait
      hvdp_abort("interrupted while it waited for the others to close");
      const WithoutGil without_gil;
      closing.wait();
    }
    throw py::error_already_set();
  }
  const std::int32_t status = closing.get();
  if (status != HVDP_OK) raise(status, message);
}

void set_diagnosis(double stall_warning_seconds, const std::string& flight_directory,
                   const std::string& versions, std::int32_t flight_signal) {
  hvdp_diagnosis options{};
  options.stall_warning_seconds = stall_warning_seconds;
  options.flight_directory = flight_directory.c_str();
  options.versions = versions.c_str();
  options.flight_signal = flight_signal;
  check(hvdp_set_diagnosis(&options));
}

void set_leave_out(double seconds) { check(hvdp_set_leave_out(seconds)); }

// For a thread that does nothing else. Level 0: none within `seconds`; None: no
// more will come.
py::object next_notice(double seconds) {
  std::int32_t level = 0;
  const char* text = "";
  std::int32_t status = HVDP_OK;
  {
    const WithoutGil without_gil;
    status = hvdp_next_notice(seconds, &level, &text);
  }
  if (status == HVDP_NOT_CONNECTED) return py::none();
  if (status == HVDP_TIMEOUT) return py::make_tuple(0, "");
  check(status);
  return py::make_tuple(level, py::str(text));
}

std::string write_flight_record(const std::string& reason) {
  const char* path = "";
  std::int32_t status = HVDP_OK;
  {
    const WithoutGil without_gil;
    status = hvdp_write_flight_record(reason.c_str(), &path);
  }
  check(status);
  return path;
}

py::dict engine_stats() {
  hvdp_engine_stats stats{};
  check(hvdp_get_engine_stats(&stats));
  py::dict result;
  result["control_messages_sent"] = stats.control_messages_sent;
  result["bytes_sent"] = stats.bulk_bytes_sent;
  result["bytes_received"] = stats.bulk_bytes_received;
  result["rounds"] = stats.rounds;
  return result;
}

std::vector<std::string> transports() {
  std::vector<std::string> names;
  std::istringstream lines(hvdp_transports());
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

class Channel {
 public:
  Channel(const std::string& name, const std::vector<std::int64_t>& element_counts,
          const std::vector<std::int32_t>& dtypes, const std::string& signature,
          const ModeTuple& mode, std::int32_t average, std::int32_t catch_up, std::int32_t max_lag,
          const std::vector<double>& staleness_weights, double grace_seconds, bool skip_nonfinite)
      : tensor_count_(element_counts.size()) {
    if (dtypes.size() != element_counts.size()) {
      throw py::value_error("element_counts and dtypes must have the same length");
    }
    hvdp_channel_options options{};
    options.name = name.c_str();
    options.tensor_count = static_cast<std::int32_t>(element_counts.size());
    options.element_counts = element_counts.data();
    options.dtypes = dtypes.data();
    options.signature = signature.c_str();
    options.mode = to_mode(mode);
    options.average = average;
    options.catch_up = catch_up;
    options.max_lag = max_lag;
    options.staleness_weights = staleness_weights.data();
    options.staleness_weight_count = static_cast<std::int32_t>(staleness_weights.size());
    options.grace_seconds = grace_seconds;
    options.skip_nonfinite = skip_nonfinite ? 1 : 0;
    check(hvdp_channel_open(&options, &channel_));
  }

  // The same for two objects that lead to the same channel.
  std::uintptr_t handle() const { return reinterpret_cast<std::uintptr_t>(channel_); }

  // The arrays have been checked: count, dtypes, shapes, C order, aligned.
  bool deposit(const std::vector<py::array>& arrays) {
    check_count(arrays);
    std::vector<const void*> tensors;
    for (const py::array& array : arrays) tensors.push_back(array.data());
    std::int32_t skipped = 0;
    std::int32_t status = HVDP_OK;
    {
      const WithoutGil without_gil;
      status = hvdp_channel_deposit(channel_, tensors.data(), -1.0, &skipped);
    }
    check(status);
    return skipped != 0;
  }

  std::tuple<std::int32_t, bool> wait() {
    while (true) {
      std::int32_t available = 0;
      std::int32_t flushed = 0;
      std::int32_t status = HVDP_OK;
      {
        const WithoutGil without_gil;
        status = hvdp_channel_wait(channel_, kSignalSeconds, &available, &flushed);
      }
      if (status != HVDP_TIMEOUT) {
        check(status);
        return {available, flushed != 0};
      }
      check_signals();
    }
  }

  py::dict header(std::int32_t index) {
    hvdp_round_header header{};
    check(hvdp_channel_header(channel_, index, &header));
    const std::int32_t size = hvdp_size();
    std::vector<std::int32_t> contributions(size < 0 ? 0 : size);
    std::vector<double> compute_seconds(contributions.size());
    check(hvdp_channel_header_ranks(channel_, index, contributions.data(), compute_seconds.data()));
    py::dict result;
    result["round"] = header.round;
    result["mode"] = from_mode(header.mode);
    result["contributions"] = header.contributions;
    result["skipped"] = header.skipped;
    result["included"] = header.included != 0;
    result["flush"] = header.flush != 0;
    result["weight"] = header.weight;
    result["divisor"] = header.divisor;
    result["total_contributions"] = header.total_contributions;
    result["contributions_of"] = contributions;
    std::vector<std::int32_t> dropped(contributions.size());
    check(hvdp_channel_header_dropped(channel_, index, dropped.data()));
    result["dropped_of"] = dropped;
    result["compute_seconds"] = compute_seconds;
    return result;
  }

  void read(std::int32_t index, std::vector<py::array> arrays) {
    check_count(arrays);
    std::vector<void*> tensors;
    for (py::array& array : arrays) tensors.push_back(array.mutable_data());
    std::int32_t status = HVDP_OK;
    {
      const WithoutGil without_gil;
      status = hvdp_channel_read(channel_, index, tensors.data());
    }
    check(status);
  }

  void release(std::int32_t count) { check(hvdp_channel_release(channel_, count)); }
  void begin_flush() { check(hvdp_channel_begin_flush(channel_)); }
  void leave() { check(hvdp_channel_leave(channel_)); }

  void set_mode(std::int32_t kind, std::int32_t quorum, std::uint64_t seed) {
    const hvdp_mode mode{kind, quorum, seed};
    check(hvdp_channel_set_mode(channel_, &mode));
  }

  void exclude(const std::vector<std::int32_t>& ranks, bool drop) {
    check(hvdp_channel_exclude(channel_, ranks.data(), static_cast<std::int32_t>(ranks.size()),
                               drop ? 1 : 0));
  }

  void decide(std::uint64_t number, const ModeTuple& mode,
              const std::vector<std::int32_t>& excluded, bool drop) {
    const hvdp_mode native = to_mode(mode);
    check(hvdp_channel_decide(channel_, number, &native, excluded.data(),
                              static_cast<std::int32_t>(excluded.size()), drop ? 1 : 0));
  }

  py::dict stats() {
    hvdp_channel_stats stats{};
    const std::int32_t size = hvdp_size();
    std::vector<double> compute_seconds(size < 0 ? 0 : size);
    check(hvdp_channel_get_stats(channel_, &stats, compute_seconds.data()));
    py::dict result;
    result["rounds"] = stats.rounds;
    result["full_rounds"] = stats.full_rounds;
    result["flushes"] = stats.flushes;
    result["contributions"] = stats.contributions;
    result["contribution_weight"] = stats.contribution_weight;
    result["deposits"] = stats.deposits;
    result["late_deposits"] = stats.late_deposits;
    result["skipped"] = stats.skipped;
    result["dropped"] = stats.dropped;
    result["missed"] = stats.missed;
    result["made_without"] = stats.made_without;
    result["deferred"] = stats.deferred;
    result["lag"] = stats.lag;
    result["largest_lag"] = stats.largest_lag;
    result["blocked_seconds"] = stats.blocked_seconds;
    result["deposit_seconds"] = stats.deposit_seconds;
    result["grace_seconds"] = stats.grace_seconds;
    result["mode"] = from_mode(stats.mode);
    result["compute_seconds"] = compute_seconds;
    std::vector<std::int32_t> excluded(compute_seconds.size());
    check(hvdp_channel_excluded(channel_, excluded.data()));
    result["excluded"] = excluded;
    return result;
  }

 private:
  void check_count(const std::vector<py::array>& arrays) const {
    if (arrays.size() != tensor_count_) {
      throw py::value_error("expected " + std::to_string(tensor_count_) + " arrays, got " +
                            std::to_string(arrays.size()));
    }
  }

  std::size_t tensor_count_;
  hvdp_channel* channel_ = nullptr;
};

}  // namespace

PYBIND11_MODULE(_engine, module) {
  module.doc() = "The native engine; use hvd_partial.engine.";
  module.attr("ABI_VERSION") = HVDP_ABI_VERSION;
  if (hvdp_abi_version() != HVDP_ABI_VERSION) {
    throw py::import_error("libhvd_partial.so has ABI version " +
                           std::to_string(hvdp_abi_version()) + ", this module needs " +
                           std::to_string(HVDP_ABI_VERSION) + ": build the package again");
  }
  module.def("open_engine", &open_engine, py::arg("rank"), py::arg("size"));
  module.def("connect_engine", &connect_engine, py::arg("addresses"));
  module.def("close_engine", &close_engine, py::arg("silence_seconds"));
  module.def(
      "abort", [](const std::string& reason) { check(hvdp_abort(reason.c_str())); },
      py::arg("reason"));
  module.def("connected", [] { return hvdp_connected() != 0; });
  module.def(
      "set_mode_all",
      [](std::int32_t kind, std::int32_t quorum, std::uint64_t seed) {
        const hvdp_mode mode{kind, quorum, seed};
        check(hvdp_set_mode_all(&mode));
      },
      py::arg("kind"), py::arg("quorum"), py::arg("seed"));
  module.def("set_leave_out", &set_leave_out, py::arg("seconds"));
  module.def("set_diagnosis", &set_diagnosis, py::arg("stall_warning_seconds"),
             py::arg("flight_directory"), py::arg("versions"), py::arg("flight_signal"));
  module.def("next_notice", &next_notice, py::arg("seconds"));
  module.def("write_flight_record", &write_flight_record, py::arg("reason"));
  module.def("engine_stats", &engine_stats);
  module.def("transports", &transports);
  hvd_partial::add_simulation(&module);

  py::class_<Channel>(module, "Channel")
      .def(py::init<const std::string&, const std::vector<std::int64_t>&,
                    const std::vector<std::int32_t>&, const std::string&, const ModeTuple&,
                    std::int32_t, std::int32_t, std::int32_t, const std::vector<double>&, double,
                    bool>(),
           py::kw_only(), py::arg("name"), py::arg("element_counts"), py::arg("dtypes"),
           py::arg("signature"), py::arg("mode"), py::arg("average"), py::arg("catch_up"),
           py::arg("max_lag"), py::arg("staleness_weights"), py::arg("grace_seconds"),
           py::arg("skip_nonfinite"))
      .def_property_readonly("handle", &Channel::handle)
      .def("deposit", &Channel::deposit, py::arg("arrays"))
      .def("wait", &Channel::wait)
      .def("header", &Channel::header, py::arg("index"))
      .def("read", &Channel::read, py::arg("index"), py::arg("arrays"))
      .def("release", &Channel::release, py::arg("count"))
      .def("begin_flush", &Channel::begin_flush)
      .def("leave", &Channel::leave)
      .def("set_mode", &Channel::set_mode, py::arg("kind"), py::arg("quorum"), py::arg("seed"))
      .def("exclude", &Channel::exclude, py::arg("ranks"), py::arg("drop"))
      .def("decide", &Channel::decide, py::arg("number"), py::arg("mode"), py::arg("excluded"),
           py::arg("drop"))
      .def("stats", &Channel::stats);
}

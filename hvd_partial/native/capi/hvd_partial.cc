// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "capi/hvd_partial.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "transport/ucx_transport.h"

using hvd_partial::Average;
using hvd_partial::Channel;
using hvd_partial::ChannelOptions;
using hvd_partial::ChannelStats;
using hvd_partial::DiagnosisOptions;
using hvd_partial::DType;
using hvd_partial::Engine;
using hvd_partial::ErrorCode;
using hvd_partial::Mode;
using hvd_partial::ModeKind;
using hvd_partial::Notices;
using hvd_partial::RoundHeader;
using hvd_partial::Status;
using hvd_partial::TensorSpec;

// What callers hold. Stays valid after close, when it leads nowhere.
struct hvdp_channel {
  std::mutex mutex;
  std::shared_ptr<Channel> channel;
};

namespace {

// The one engine of the process, and all handles ever given out (they are
// small, and a caller may come back with an old one at any time).
struct EngineHandle {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  bool connected = false;
  std::shared_ptr<Notices> notices;  // of the engine; may outlive it, for its last lines
  std::vector<std::unique_ptr<hvdp_channel>> channels;
};

EngineHandle& handle() {
  // Never destroyed: threads may still be in a call while the process ends.
  static EngineHandle* const instance = new EngineHandle;
  return *instance;
}

// Nobody wants to be so late; it bounds the table of weights and every sum of sizes.
constexpr int32_t kLargestMaxLag = 65536;

thread_local std::string last_error;

int32_t report(const Status& status) {
  if (!status.ok()) last_error = status.message();
  return static_cast<int32_t>(status.code());
}

Status not_connected() {
  return Status(ErrorCode::kNotConnected,
                "the engine is not connected: call init() (or connect()) first, and nothing after "
                "shutdown() (or close())");
}

Status invalid(const std::string& message) { return Status(ErrorCode::kInvalidArgument, message); }

// No exception crosses the ABI.
template <typename Body>
int32_t guarded(Body body) {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(Status(ErrorCode::kInternal, "out of memory"));
  } catch (const std::exception& error) {
    return report(Status(ErrorCode::kInternal, error.what()));
  }
}

std::shared_ptr<Engine> connected_engine() {
  EngineHandle& global = handle();
  const std::lock_guard<std::mutex> lock(global.mutex);
  return global.connected ? global.engine : nullptr;
}

template <typename Body>
int32_t with_engine(Body body) {
  return guarded([&]() -> Status {
    const std::shared_ptr<Engine> engine = connected_engine();
    return engine == nullptr ? not_connected() : body(*engine);
  });
}

template <typename Body>
int32_t with_channel(hvdp_channel* channel, Body body) {
  return guarded([&]() -> Status {
    if (channel == nullptr) return invalid("channel is NULL");
    std::shared_ptr<Channel> target;
    {
      const std::lock_guard<std::mutex> lock(channel->mutex);
      target = channel->channel;
    }
    return target == nullptr ? not_connected() : body(*target);
  });
}

Mode to_mode(const hvdp_mode& mode) {
  return Mode{static_cast<ModeKind>(mode.kind), mode.quorum, mode.seed};
}

hvdp_mode from_mode(const Mode& mode) {
  return hvdp_mode{static_cast<int32_t>(mode.kind), mode.quorum, mode.seed};
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
  }
  return "unknown";
}

// Everything in which the ranks must agree, a line each: tensors, then options.
std::string full_signature(const hvdp_channel_options& options, const ChannelOptions& parsed) {
  std::string text = std::to_string(parsed.tensors.size()) + " tensors\n";
  if (options.signature != nullptr) {
    text += options.signature;
    text += '\n';
  }
  for (std::size_t i = 0; i < parsed.tensors.size(); ++i) {
    text += "tensor " + std::to_string(i) + ": " + dtype_name(parsed.tensors[i].dtype) + ", " +
            std::to_string(parsed.tensors[i].elements) + " elements\n";
  }
  text += "mode " + to_string(parsed.member.mode) + "\n";
  text += "average " + std::to_string(options.average) + "\n";
  text += "catch_up " + std::string(options.catch_up == HVDP_LATEST ? "latest" : "replay") + "\n";
  text += "max_lag " + std::to_string(options.max_lag) + "\n";
  text += "staleness weights";
  for (double weight : parsed.member.staleness_weights) text += " " + std::to_string(weight);
  text += "\n";
  text +=
      "grace " +
      (options.grace_seconds < 0 ? std::string("auto") : std::to_string(options.grace_seconds)) +
      "\n";
  text += "skip_nonfinite " + std::to_string(options.skip_nonfinite) + "\n";
  return text;
}

Status parse_options(const hvdp_channel_options& options, int size, ChannelOptions* parsed) {
  if (options.name == nullptr || *options.name == '\0') return invalid("name: must not be empty");
  parsed->name = options.name;
  const std::string where = "channel '" + parsed->name + "': ";
  if (options.tensor_count < 0 || (options.tensor_count > 0 && (options.element_counts == nullptr ||
                                                                options.dtypes == nullptr))) {
    return invalid(where + "tensors: a count without element counts and dtypes");
  }
  bool integers = false;
  for (int32_t i = 0; i < options.tensor_count; ++i) {
    const int32_t dtype = options.dtypes[i];
    if (dtype < HVDP_FLOAT32 || dtype > HVDP_INT64 || options.element_counts[i] < 0) {
      return invalid(where + "tensor " + std::to_string(i) + ": unknown dtype or negative size");
    }
    const TensorSpec spec{static_cast<DType>(dtype),
                          static_cast<std::size_t>(options.element_counts[i])};
    integers |= !hvd_partial::is_floating(spec.dtype);
    parsed->tensors.push_back(spec);
  }
  parsed->member.mode = to_mode(options.mode);
  if (!valid(parsed->member.mode, size)) {
    return invalid(where + "mode: " + to_string(parsed->member.mode) + " does not fit " +
                   std::to_string(size) + " ranks; a quorum is 1 to " + std::to_string(size));
  }
  if (options.max_lag < 1 || options.max_lag > kLargestMaxLag) {
    return invalid(where + "max_lag: must be 1 to " + std::to_string(kLargestMaxLag));
  }
  parsed->member.max_lag = options.max_lag;
  if (options.catch_up != HVDP_REPLAY && options.catch_up != HVDP_LATEST) {
    return invalid(where + "catch_up: must be replay or latest");
  }
  parsed->member.latest_only = options.catch_up == HVDP_LATEST;
  if (options.average < HVDP_AVERAGE_NONE || options.average > HVDP_AVERAGE_CONTRIBUTIONS) {
    return invalid(where + "average: must be none, size or contributions");
  }
  parsed->average = static_cast<Average>(options.average);
  if (options.staleness_weights == nullptr || options.staleness_weight_count < 1) {
    return invalid(where + "staleness: needs at least one weight");
  }
  parsed->member.staleness_weights.assign(
      options.staleness_weights, options.staleness_weights + options.staleness_weight_count);
  for (double weight : parsed->member.staleness_weights) {
    if (!std::isfinite(weight)) return invalid(where + "staleness: weights must be finite");
    if (integers && weight != 1) {
      return invalid(where + "staleness: integers keep their full weight; use \"full\"");
    }
  }
  if (integers && parsed->average != Average::kNone) {
    return invalid(where + "average: integers are summed, not averaged; use None");
  }
  if (!std::isfinite(options.grace_seconds)) {
    return invalid(where + "grace: must be a finite number of seconds, or negative (learned)");
  }
  parsed->grace_seconds = options.grace_seconds;
  parsed->skip_nonfinite = options.skip_nonfinite != 0;
  parsed->signature = full_signature(options, *parsed);
  return {};
}

hvdp_channel* find_handle(EngineHandle* global, const std::shared_ptr<Channel>& channel) {
  for (const auto& known : global->channels) {
    const std::lock_guard<std::mutex> lock(known->mutex);
    if (known->channel == channel) return known.get();
  }
  return nullptr;
}

}  // namespace

extern "C" {

const char* hvdp_last_error(void) { return last_error.c_str(); }
int32_t hvdp_abi_version(void) { return HVDP_ABI_VERSION; }

int32_t hvdp_open(int32_t rank, int32_t size, const uint8_t** address, size_t* address_size) {
  return guarded([&]() -> Status {
    if (size < 1 || rank < 0 || rank >= size) {
      return invalid("rank " + std::to_string(rank) + " of " + std::to_string(size) +
                     ": rank must be 0 to size - 1");
    }
    EngineHandle& global = handle();
    const std::lock_guard<std::mutex> lock(global.mutex);
    if (global.connected) {
      return invalid("rank " + std::to_string(rank) + ": connected already; close() first");
    }
    Status status;
    auto transport = hvd_partial::make_ucx_transport(rank, size, &status);
    if (!status.ok()) return status;
    global.engine = std::make_shared<Engine>(std::move(transport));
    *address = global.engine->address().data();
    *address_size = global.engine->address().size();
    return {};
  });
}

int32_t hvdp_connect(const uint8_t* const* addresses, const size_t* address_sizes) {
  return guarded([&]() -> Status {
    EngineHandle& global = handle();
    const std::lock_guard<std::mutex> lock(global.mutex);
    if (global.engine == nullptr || global.connected) {
      return invalid("connect goes once after open");
    }
    if (addresses == nullptr || address_sizes == nullptr) return invalid("addresses is NULL");
    std::vector<std::vector<std::uint8_t>> all;
    for (int i = 0; i < global.engine->size(); ++i) {
      all.emplace_back(addresses[i], addresses[i] + address_sizes[i]);
    }
    Status status = global.engine->connect(all);
    global.connected = status.ok();
    return status;
  });
}

int32_t hvdp_close(double silence_seconds) {
  return guarded([&]() -> Status {
    EngineHandle& global = handle();
    const std::shared_ptr<Engine> engine = connected_engine();
    if (engine != nullptr) engine->close(silence_seconds);
    const std::lock_guard<std::mutex> lock(global.mutex);
    if (global.engine != engine) return {};  // somebody else has closed it meanwhile
    global.connected = false;
    global.engine.reset();
    for (const auto& channel : global.channels) {
      const std::lock_guard<std::mutex> channel_lock(channel->mutex);
      channel->channel.reset();
    }
    return {};
  });
}

int32_t hvdp_abort(const char* reason) {
  return with_engine([&](Engine& engine) -> Status {
    engine.abort(reason == nullptr ? "no reason given" : reason);
    return {};
  });
}

int32_t hvdp_set_diagnosis(const hvdp_diagnosis* options) {
  return guarded([&]() -> Status {
    EngineHandle& global = handle();
    const std::lock_guard<std::mutex> lock(global.mutex);
    if (global.engine == nullptr || global.connected) {
      return invalid("the diagnosis goes between open and connect");
    }
    DiagnosisOptions parsed;
    parsed.stall_warning_seconds = options->stall_warning_seconds;
    if (options->flight_directory != nullptr) parsed.flight_directory = options->flight_directory;
    if (options->versions != nullptr) parsed.versions = options->versions;
    parsed.notices = global.notices = std::make_shared<Notices>();
    return global.engine->set_diagnosis(std::move(parsed), options->flight_signal);
  });
}

int32_t hvdp_set_leave_out(double seconds) {
  return guarded([&]() -> Status {
    EngineHandle& global = handle();
    const std::lock_guard<std::mutex> lock(global.mutex);
    if (global.engine == nullptr || global.connected) {
      return invalid("the time after which ranks are left out is set between open and connect");
    }
    if (!std::isfinite(seconds) || seconds < 0) {
      return invalid("the time after which ranks are left out must be 0 or more seconds");
    }
    global.engine->set_leave_out_seconds(seconds);
    return {};
  });
}

int32_t hvdp_next_notice(double seconds, int32_t* level, const char** text) {
  thread_local Notices::Notice notice;
  return guarded([&]() -> Status {
    std::shared_ptr<Notices> notices;
    {
      EngineHandle& global = handle();
      const std::lock_guard<std::mutex> lock(global.mutex);
      notices = global.notices;
    }
    if (notices == nullptr) return not_connected();
    switch (notices->take(seconds, &notice)) {
      case Notices::Taken::kNotice:
        *level = static_cast<int32_t>(notice.level);
        *text = notice.text.c_str();
        return {};
      case Notices::Taken::kTimeout:
        return Status(ErrorCode::kTimeout, "no line yet");
      case Notices::Taken::kClosed:
        break;
    }
    return not_connected();
  });
}

int32_t hvdp_write_flight_record(const char* reason, const char** path) {
  thread_local std::string written;
  return with_engine([&](Engine& engine) -> Status {
    written = engine.write_flight_record(reason == nullptr ? "asked for" : reason);
    *path = written.c_str();
    return {};
  });
}

int32_t hvdp_connected(void) { return connected_engine() != nullptr ? 1 : 0; }

int32_t hvdp_rank(void) {
  const auto engine = connected_engine();
  return engine == nullptr ? -1 : engine->rank();
}

int32_t hvdp_size(void) {
  const auto engine = connected_engine();
  return engine == nullptr ? -1 : engine->size();
}

int32_t hvdp_set_mode_all(const hvdp_mode* mode) {
  return with_engine([&](Engine& engine) { return engine.set_mode(to_mode(*mode)); });
}

int32_t hvdp_get_engine_stats(hvdp_engine_stats* stats) {
  return with_engine([&](Engine& engine) -> Status {
    const auto counters = engine.counters();
    stats->control_messages_sent = counters.control_messages_sent;
    stats->bulk_bytes_sent = counters.bulk_bytes_sent;
    stats->bulk_bytes_received = counters.bulk_bytes_received;
    stats->rounds = 0;
    for (const auto& channel : engine.channels()) stats->rounds += channel->stats().rounds;
    return {};
  });
}

const char* hvdp_transports(void) {
  thread_local std::string names;
  try {
    names = hvd_partial::ucx_transport_names();
  } catch (const std::exception& error) {
    names = std::string("unknown: ") + error.what();
  }
  return names.c_str();
}

int32_t hvdp_channel_open(const hvdp_channel_options* options, hvdp_channel** channel) {
  return with_engine([&](Engine& engine) -> Status {
    ChannelOptions parsed;
    if (Status status = parse_options(*options, engine.size(), &parsed); !status.ok()) {
      return Status(status.code(),
                    "rank " + std::to_string(engine.rank()) + ", " + status.message());
    }
    std::shared_ptr<Channel> opened;
    if (Status status = engine.open_channel(std::move(parsed), &opened); !status.ok()) {
      return status;
    }
    EngineHandle& global = handle();
    const std::lock_guard<std::mutex> lock(global.mutex);
    *channel = find_handle(&global, opened);
    if (*channel == nullptr) {
      global.channels.push_back(std::make_unique<hvdp_channel>());
      global.channels.back()->channel = std::move(opened);
      *channel = global.channels.back().get();
    }
    return {};
  });
}

hvdp_channel* hvdp_channel_find(const char* name) {
  hvdp_channel* found = nullptr;
  const int32_t status = with_engine([&](Engine& engine) -> Status {
    const auto channel = engine.find_channel(name);
    if (channel == nullptr) return invalid("there is no channel '" + std::string(name) + "'");
    EngineHandle& global = handle();
    const std::lock_guard<std::mutex> lock(global.mutex);
    found = find_handle(&global, channel);
    return {};
  });
  return status == HVDP_OK ? found : nullptr;
}

int32_t hvdp_channel_deposit(hvdp_channel* channel, const void* const* tensors,
                             double compute_seconds, int32_t* skipped) {
  return with_channel(channel, [&](Channel& target) {
    bool left_out = false;
    Status status = target.deposit(tensors, compute_seconds, &left_out);
    if (skipped != nullptr) *skipped = left_out ? 1 : 0;
    return status;
  });
}

int32_t hvdp_channel_wait(hvdp_channel* channel, double seconds, int32_t* available,
                          int32_t* flushed) {
  return with_channel(channel, [&](Channel& target) {
    int results = 0;
    bool ended = false;
    Status status = target.wait(seconds, &results, &ended);
    *available = results;
    *flushed = ended ? 1 : 0;
    return status;
  });
}

int32_t hvdp_channel_notify(hvdp_channel* channel, hvdp_ready ready, void* context) {
  return with_channel(channel, [&](Channel& target) {
    return target.notify([ready, context] { ready(context); });
  });
}

int32_t hvdp_channel_header(hvdp_channel* channel, int32_t index, hvdp_round_header* out) {
  return with_channel(channel, [&](Channel& target) {
    const RoundHeader* header = nullptr;
    Status status = target.header(index, &header);
    if (!status.ok()) return status;
    out->round = header->round;
    out->mode = from_mode(header->mode);
    out->contributions = header->contributions;
    out->contributors = header->contributors;
    out->skipped = header->skipped;
    out->included = header->included ? 1 : 0;
    out->flush = header->flush ? 1 : 0;
    out->weight = header->weight;
    out->divisor = header->divisor;
    out->total_contributions = header->total_contributions;
    out->dropped = header->dropped;
    return status;
  });
}

int32_t hvdp_channel_header_ranks(hvdp_channel* channel, int32_t index, int32_t* contributions,
                                  double* compute_seconds) {
  return with_channel(channel, [&](Channel& target) {
    const RoundHeader* header = nullptr;
    Status status = target.header(index, &header);
    if (!status.ok()) return status;
    if (contributions != nullptr) {
      std::copy(header->contributions_of.begin(), header->contributions_of.end(), contributions);
    }
    if (compute_seconds != nullptr) {
      std::copy(header->compute_seconds_of.begin(), header->compute_seconds_of.end(),
                compute_seconds);
    }
    return status;
  });
}

int32_t hvdp_channel_header_dropped(hvdp_channel* channel, int32_t index, int32_t* dropped) {
  return with_channel(channel, [&](Channel& target) {
    const RoundHeader* header = nullptr;
    Status status = target.header(index, &header);
    if (!status.ok()) return status;
    std::copy(header->dropped_of.begin(), header->dropped_of.end(), dropped);
    return status;
  });
}

int32_t hvdp_channel_read(hvdp_channel* channel, int32_t index, void* const* tensors) {
  return with_channel(channel, [&](Channel& target) { return target.read(index, tensors); });
}

int32_t hvdp_channel_release(hvdp_channel* channel, int32_t count) {
  return with_channel(channel, [&](Channel& target) { return target.release(count); });
}

int32_t hvdp_channel_begin_flush(hvdp_channel* channel) {
  return with_channel(channel, [&](Channel& target) { return target.begin_flush(); });
}

int32_t hvdp_channel_leave(hvdp_channel* channel) {
  return with_channel(channel, [&](Channel& target) { return target.leave(); });
}

int32_t hvdp_channel_set_mode(hvdp_channel* channel, const hvdp_mode* mode) {
  return with_channel(channel, [&](Channel& target) { return target.set_mode(to_mode(*mode)); });
}

int32_t hvdp_channel_exclude(hvdp_channel* channel, const int32_t* ranks, int32_t count,
                             int32_t drop) {
  return with_channel(channel, [&](Channel& target) {
    return target.exclude(std::vector<int>(ranks, ranks + count), drop != 0);
  });
}

int32_t hvdp_channel_decide(hvdp_channel* channel, uint64_t number, const hvdp_mode* mode,
                            const int32_t* excluded, int32_t count, int32_t drop) {
  return with_channel(channel, [&](Channel& target) {
    return target.decide(number, to_mode(*mode), std::vector<int>(excluded, excluded + count),
                         drop != 0);
  });
}

int32_t hvdp_channel_excluded(hvdp_channel* channel, int32_t* excluded) {
  return with_channel(channel, [&](Channel& target) -> Status {
    std::fill(excluded, excluded + std::max(hvdp_size(), 0), 0);
    for (const int rank : target.stats().excluded) excluded[rank] = 1;
    return {};
  });
}

int32_t hvdp_channel_get_stats(hvdp_channel* channel, hvdp_channel_stats* out,
                               double* compute_seconds) {
  return with_channel(channel, [&](Channel& target) -> Status {
    const ChannelStats stats = target.stats();
    out->rounds = stats.rounds;
    out->full_rounds = stats.full_rounds;
    out->flushes = stats.flushes;
    out->contributions = stats.contributions;
    out->deposits = stats.deposits;
    out->late_deposits = stats.late_deposits;
    out->skipped = stats.skipped;
    out->missed = stats.missed;
    out->lag = stats.lag;
    out->largest_lag = stats.largest_lag;
    out->blocked_seconds = stats.blocked_seconds;
    out->deposit_seconds = stats.deposit_seconds;
    out->contribution_weight = stats.contribution_weight;
    out->grace_seconds = stats.grace_seconds;
    out->mode = from_mode(stats.mode);
    out->dropped = stats.dropped;
    out->made_without = stats.made_without;
    out->deferred = stats.deferred;
    if (compute_seconds != nullptr) {
      std::copy(stats.compute_seconds_of.begin(), stats.compute_seconds_of.end(), compute_seconds);
    }
    return {};
  });
}

}  // extern "C"

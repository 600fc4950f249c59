// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/flight_record.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <variant>

namespace hvd_partial {
namespace {

// By their index in the variant.
constexpr const char* kMessages[] = {
    "OpenChannel", "Call",   "SetMode",   "Exclude", "Decide",   "Flush",    "Leave",   "Goodbye",
    "Abort",       "Opened", "Rejected",  "Members", "Activate", "PeerLost", "Aborted", "Training",
    "AllGone",     "Held",   "StallTold", "Frozen",  "Freeze",   "Thaw",     "Defer",   "Deliver"};
static_assert(std::size(kMessages) == std::variant_size_v<Message>, "a name for each message");

constexpr const char* kKinds[] = {
    "connect", "open",  "opened",  "rejected", "call",       "deposit", "return",  "release",
    "flush",   "leave", "mode",    "activate", "join",       "publish", "members", "send",
    "receive", "lost",  "failure", "stall",    "stall over", "abort",   "close"};
static_assert(std::size(kKinds) == static_cast<std::size_t>(FlightKind::kClose) + 1);

constexpr const char* kCauses[] = {"", "ring full", "depositing", "reducing"};
constexpr const char* kStallKinds[] = {"calls", "flush", "reduction"};
constexpr const char* kWhys[] = {"not opened", "not called", "ring full", "depositing", "silent"};

// One object on one line. Keys come in the order they are put.
class JsonLine {
 public:
  explicit JsonLine(std::string* out) : out_(out) { *out_ += '{'; }
  void end() { *out_ += "}\n"; }

  template <typename T>
  void put(const char* key, const T& value) {
    if (!first_) *out_ += ',';
    first_ = false;
    quote(key);
    *out_ += ':';
    write(value);
  }

 private:
  void write(bool value) { *out_ += value ? "true" : "false"; }
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  void write(T value) {
    *out_ += std::to_string(value);
  }
  void write(double value) {
    if (!std::isfinite(value)) {
      *out_ += "null";
      return;
    }
    char text[40];
    std::snprintf(text, sizeof(text), "%.6f", value);
    *out_ += text;
  }
  void write(const char* value) { quote(value); }
  void write(const std::string& value) { quote(value); }
  template <typename T>
  void write(const std::vector<T>& values) {
    *out_ += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) *out_ += ',';
      write(values[i]);
    }
    *out_ += ']';
  }
  void write(const Stall::Missing& missing) {
    *out_ += "{\"rank\":" + std::to_string(missing.rank) + ",\"why\":\"" +
             kWhys[static_cast<std::size_t>(missing.why)] + "\",\"called\":";
    if (missing.called < 0) {
      *out_ += "null";
    } else {
      write(missing.called);
    }
    *out_ += '}';
  }

  void quote(std::string_view text) {
    *out_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        *out_ += '\\';
        *out_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof(escape), "\\u%04x", c);
        *out_ += escape;
      } else {
        *out_ += c;
      }
    }
    *out_ += '"';
  }

  std::string* out_;
  bool first_ = true;
};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

std::string mode_text(std::uint8_t kind, std::int32_t quorum) {
  Mode mode{static_cast<ModeKind>(kind), quorum, 0};
  std::string text = to_string(mode);
  return text.substr(0, text.find("(0)"));  // what the event does not hold
}

void put_header(const FlightRecord& record, std::string* out) {
  JsonLine line(out);
  line.put("line", "header");
  line.put("format", 1);
  line.put("rank", record.rank);
  line.put("size", record.size);
  line.put("pid", static_cast<int>(::getpid()));
  line.put("host", host_name());
  // Ranks with the same one share a clock, in whatever container they run.
  line.put("boot", first_line("/proc/sys/kernel/random/boot_id"));
  line.put("versions", record.versions);
  line.put("reason", record.reason);
  line.put("progress", record.progress);
  line.put("wall", record.wall);
  line.put("monotonic", record.monotonic);
  line.put("events", record.events.size());
  line.put("recorded", record.recorded);
  line.end();
}

void put_channel(const Channel::Condition& channel, double now, std::string* out) {
  JsonLine line(out);
  line.put("line", "channel");
  line.put("name", channel.name);
  line.put("local", channel.number);
  line.put("answers", channel.answers);
  if (channel.answers) {
    const ChannelStats& stats = channel.stats;
    if (channel.wait.id.has_value()) line.put("id", *channel.wait.id);
    line.put("mode", to_string(stats.mode));
    line.put("round", stats.rounds);
    line.put("applied", channel.applied);
    line.put("waits", channel.wait.since >= 0);
    if (channel.wait.since >= 0) line.put("waits_seconds", now - channel.wait.since);
    line.put("held_by", kCauses[static_cast<std::size_t>(channel.wait.cause)]);
    line.put("flushing", channel.flushing);
    line.put("left", channel.left);
    if (channel.called_ago >= 0) line.put("called_ago", channel.called_ago);
    line.put("held_contributions", channel.held_contributions);
    line.put("ring_results", channel.results);
    line.put("ring_capacity", channel.ring_capacity);
    line.put("free_buffers", channel.free_buffers);
    line.put("buffer_bytes", channel.buffer_bytes);
    line.put("full_rounds", stats.full_rounds);
    line.put("flushes", stats.flushes);
    line.put("contributions", stats.contributions);
    line.put("deposits", stats.deposits);
    line.put("late_deposits", stats.late_deposits);
    line.put("skipped", stats.skipped);
    line.put("missed", stats.missed);
    line.put("made_without", stats.made_without);
    line.put("deferred", stats.deferred);
    line.put("lag", stats.lag);
    line.put("largest_lag", stats.largest_lag);
    line.put("blocked_seconds", stats.blocked_seconds);
    line.put("deposit_seconds", stats.deposit_seconds);
    line.put("grace_seconds", stats.grace_seconds);
    line.put("compute_seconds", stats.compute_seconds_of);
    line.put("state", channel.member);
    line.put("rejected", channel.rejected);
    line.put("told", channel.told);
  }
  line.end();
}

void put_stall(const Stall& stall, double now, std::string* out) {
  JsonLine line(out);
  line.put("line", "stall");
  line.put("kind", kStallKinds[static_cast<std::size_t>(stall.kind)]);
  line.put("channel", stall.channel);
  line.put("name", stall.name);
  line.put("round", stall.round);
  line.put("mode", to_string(stall.mode));
  line.put("since", stall.since);
  line.put("waiting", stall.waiting);
  line.put("waited_for", stall.waited_for);
  line.put("needed", stall.needed);
  line.put("text", stall.describe(now));
  line.end();
}

void put_event(const FlightEvent& event, std::string* out) {
  const auto kind = static_cast<std::size_t>(event.kind);
  JsonLine line(out);
  line.put("line", "event");
  line.put("t", event.time);
  line.put("event", kind < std::size(kKinds) ? kKinds[kind] : "unknown");
  if ((event.channel & FlightEvent::kLocal) == 0) {
    line.put("channel", event.channel);
  } else if (event.channel != FlightEvent::kNoChannel) {
    line.put("local", event.channel & ~FlightEvent::kLocal);
  }
  if (event.peer >= 0) line.put("peer", event.peer);
  switch (event.kind) {
    case FlightKind::kConnect:
      line.put("size", event.count);
      break;
    case FlightKind::kCall:
      line.put("round", event.round);
      line.put("late", event.count);
      break;
    case FlightKind::kDeposit:
      line.put("round", event.round);
      line.put("waits", event.detail != 0);
      line.put("held", event.count);
      line.put("skipped", event.other != 0);
      break;
    case FlightKind::kReturn:
      line.put("round", event.round);
      line.put("results", event.count);
      line.put("flushed", event.detail != 0);
      break;
    case FlightKind::kRelease:
      line.put("round", event.round);
      line.put("results", event.count);
      break;
    case FlightKind::kFlush:
      line.put("round", event.round);
      break;
    case FlightKind::kLeave:
      line.put("round", event.round);
      line.put("holds", event.detail != 0);
      break;
    case FlightKind::kMode:
      line.put("round", event.round);
      line.put("mode", mode_text(event.detail, event.count));
      break;
    case FlightKind::kActivate:
      line.put("round", event.round);
      line.put("mode", mode_text(event.detail, event.count));
      line.put("flush", event.other != 0);
      break;
    case FlightKind::kJoin:
      line.put("round", event.round);
      line.put("contributions", event.count);
      line.put("members", event.other);
      break;
    case FlightKind::kPublish:
      line.put("round", event.round);
      line.put("contributions", event.count);
      line.put("contributors", event.other);
      break;
    case FlightKind::kMembers:
      line.put("round", event.round);
      line.put("members", event.count);
      break;
    case FlightKind::kSend:
    case FlightKind::kReceive:
      line.put("message",
               event.detail < std::size(kMessages) ? kMessages[event.detail] : "unreadable");
      if (event.channel != FlightEvent::kNoChannel) line.put("round", event.round);
      if (event.other != 0) line.put("waits", true);
      break;
    case FlightKind::kFailure:
      line.put("code", event.detail);
      break;
    case FlightKind::kStall:
    case FlightKind::kStallOver:
      line.put("round", event.round);
      line.put("waited_for", event.count);
      break;
    case FlightKind::kOpen:
    case FlightKind::kOpened:
    case FlightKind::kRejected:
    case FlightKind::kPeerLost:
    case FlightKind::kAbort:
    case FlightKind::kClose:
      break;
  }
  line.end();
}

Status cannot_write(int rank, const std::string& path) {
  return Status(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(rank) + ": no flight record: cannot write " + path + ": " +
                    std::strerror(errno) +
                    "; set HVD_PARTIAL_FLIGHT_DIR to a folder that can be written");
}

bool write_all(int file, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace

std::string to_json_lines(const FlightRecord& record) {
  std::string text;
  text.reserve(200 * (record.events.size() + 16));
  put_header(record, &text);
  for (const auto& channel : record.channels) put_channel(channel, record.monotonic, &text);
  for (const Stall& stall : record.stalls) put_stall(stall, record.monotonic, &text);
  for (const FlightEvent& event : record.events) put_event(event, &text);
  return text;
}

Status write_flight_record(const FlightRecord& record, const std::string& directory,
                           std::string* path) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char date[32];
  std::strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &parts);
  *path = directory + "/hvd_partial-" + date + "-rank" + std::to_string(record.rank) + "-pid" +
          std::to_string(::getpid()) + "-" + std::to_string(record.number) + ".jsonl";
  // Under another name first: a reader finds a whole file, and in a folder
  // that others can write nobody can have prepared it.
  std::string partial = *path + ".XXXXXX";
  const int file = ::mkstemp(partial.data());
  if (file < 0) return cannot_write(record.rank, *path);
  const bool written = write_all(file, to_json_lines(record));
  const bool closed = ::close(file) == 0;
  if (!written || !closed || ::rename(partial.c_str(), path->c_str()) != 0) {
    const Status status = cannot_write(record.rank, *path);
    ::unlink(partial.c_str());
    return status;
  }
  return {};
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <new>
#include <sstream>
#include <thread>
#include <utility>

#include "protocol/objections.h"

namespace hvd_partial {
namespace {

static_assert(kMaxMessageBytes <= Transport::kMaxControlBytes);

// What every rank must be able to send and read.
Status check_lengths(int rank, const ChannelOptions& options) {
  const auto refuse = [rank](const std::string& what, std::size_t bytes, std::size_t limit) {
    return Status(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank) + ": " + what + " has " + std::to_string(bytes) +
                      " bytes, more than the " + std::to_string(limit) + " that can be sent; ");
  };
  if (options.name.size() > kMaxNameBytes) {
    const Status status = refuse("the name of channel '" + options.name.substr(0, 40) + "...'",
                                 options.name.size(), kMaxNameBytes);
    return Status(status.code(), status.message() + "choose a shorter one");
  }
  if (options.signature.size() > kMaxSignatureBytes) {
    const Status status = refuse("the description of the tensors of channel '" + options.name + "'",
                                 options.signature.size(), kMaxSignatureBytes);
    return Status(status.code(), status.message() + "join tensors, or give them shorter names");
  }
  return {};
}

// How long a flight record waits for what the progress thread knows.
constexpr int kAnswerMilliseconds = 500;

// What a failure is called in the reason of a flight record.
const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPeerLost:
      return "PeerLost";
    case ErrorCode::kAborted:
      return "Aborted";
    case ErrorCode::kTransport:
      return "Transport";
    default:
      return "Internal";
  }
}

// A machine's memory; more than that is refused, because the kernel would hand it out, and kill
// the process for using it.
double physical_memory_bytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

Status out_of_memory(int rank, const ChannelOptions& options, const Channel::Memory& memory) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(0) << "rank " << rank << ", channel '" << options.name
       << "': out of memory: max_lag=" << options.member.max_lag << " asks for " << memory.bytes()
       << " bytes, " << memory.buffers << " buffers of " << memory.buffer_bytes
       << " bytes each; a smaller max_lag needs less (max_lag + 3 times the size of the tensors)";
  return Status(ErrorCode::kInternal, text.str());
}

}  // namespace

Progress::Progress(Transport* transport, const Clock* clock)
    : transport_(transport),
      clock_(clock),
      rank_(transport->rank()),
      size_(transport->size()),
      diagnosis_(rank_, size_, clock),
      last_sign_of_life_(clock->now()) {
  if (rank_ == 0) coordinator_.emplace(size_);
  transport_->set_listener(this);
}

Progress::~Progress() { transport_->set_listener(nullptr); }

// ---- any thread -------------------------------------------------------------

void Progress::post(Message message) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    outbox_.push_back(std::move(message));
    outbox_empty_.store(false);
  }
  transport_->wake();
}

Status Progress::open_channel(ChannelOptions options, std::shared_ptr<Channel>* channel) {
  if (failure_.failed()) return failure_.status();
  if (Status status = check_lengths(rank_, options); !status.ok()) return status;
  if (std::shared_ptr<Channel> existing = find_channel(options.name)) {
    if (existing->options().signature != options.signature) {
      return Status(ErrorCode::kInvalidArgument,
                    "rank " + std::to_string(rank_) + ": channel '" + options.name +
                        "' is open already, with other tensors or options; use another name");
    }
    *channel = std::move(existing);
    return {};
  }
  const bool replays = !options.member.latest_only;
  OpenChannel message{options.name, options.signature, options.member.mode, options.grace_seconds,
                      replays ? static_cast<std::uint32_t>(options.member.max_lag) : 0};
  options.leave_out_seconds = leave_out_seconds_;
  const Channel::Memory memory = Channel::memory(options, size_);
  std::shared_ptr<Channel> created;
  try {
    if (memory.bytes() > physical_memory_bytes()) throw std::bad_alloc();
    created = std::make_shared<Channel>(options, transport_, clock_, &failure_, this);
  } catch (const std::bad_alloc&) {
    // No round can start without this rank, so the others must not wait for it.
    Status status = out_of_memory(rank_, options, memory);
    fail_everywhere(status);
    return status;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    created->set_number(channels_.size());
    channels_.push_back(created);
  }
  post(std::move(message));
  *channel = std::move(created);
  return {};
}

std::shared_ptr<Channel> Progress::find_channel(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& channel : channels_) {
    if (channel->options().name == name) return channel;
  }
  return nullptr;
}

std::vector<std::shared_ptr<Channel>> Progress::channels() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return channels_;
}

void Progress::fail_everywhere(Status status, bool here) {
  Abort message{status.message()};
  if (!latch(std::move(status), here)) return;
  post(std::move(message));
}

bool Progress::latch(Status status, bool here) {
  if (failing_.exchange(true)) return false;
  FlightEvent event;
  event.kind = FlightKind::kFailure;
  event.detail = static_cast<std::uint8_t>(status.code());
  recorder()->record(event);
  const std::string path =
      write_record(std::string(name_of(status.code())) + ": " + status.message(), here);
  const std::string where = path.empty() ? "" : "; flight record: " + path;
  return failure_.set(Status(status.code(), status.message() + where));
}

std::string Progress::write_flight_record(const std::string& reason) {
  return write_record(reason, /*here=*/false);
}

std::string Progress::write_record(const std::string& reason, bool here) {
  if (!diagnosis_.writes_records()) return {};
  std::vector<Stall> stalls;
  std::string progress = "answers";
  if (here) {
    if (coordinator_) stalls = coordinator_->stalls(clock_->now());
  } else {
    asked_.store(true);
    transport_->wake();
    for (int waited = 0; asked_.load() && waited < kAnswerMilliseconds; ++waited) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (asked_.load()) {
      progress = "does not answer";
    } else {
      const std::lock_guard<std::mutex> lock(answer_mutex_);
      stalls = answer_;
    }
  }
  return diagnosis_.write_record(reason, progress, channels(), stalls);
}

// ---- the progress thread ----------------------------------------------------

bool Progress::step() {
  bool moved = transport_->progress();
  moved |= !outbox_empty_.load();
  drain_outbox();
  if (asked_.load()) {
    const std::lock_guard<std::mutex> lock(answer_mutex_);
    answer_ = coordinator_ ? coordinator_->stalls(clock_->now()) : std::vector<Stall>{};
    asked_.store(false);
  }
  if (failure_.failed()) {
    if (!failure_handled_.exchange(true)) {
      transport_->cancel_all();
      for (const auto& channel : channels()) channel->on_failure();
    }
    return moved;
  }
  if (coordinator_ && coordinator_->next_deadline() <= clock_->now()) {
    decisions_.clear();
    coordinator_->tick(clock_->now(), &decisions_);
    dispatch(decisions_);
    moved = true;
  }
  for (const auto& channel : running_) {
    if (frozen_ || !channel->advance()) continue;
    moved = true;
    if (!channel->round_status().ok()) fail_everywhere(channel->round_status());
  }
  look(clock_->now());
  return moved;
}

double Progress::next_deadline() const {
  if (failure_.failed()) return kNever;
  double deadline =
      std::min(coordinator_ ? coordinator_->next_deadline() : kNever, diagnosis_.next_look());
  if (frozen_) return deadline;
  for (const auto& channel : running_) deadline = std::min(deadline, channel->next_deadline());
  return deadline;
}

void Progress::set_leave_out_seconds(double seconds) {
  leave_out_seconds_ = seconds;
  if (coordinator_) coordinator_->set_leave_out_seconds(seconds);
}

void Progress::look(double now) {
  if (now < diagnosis_.next_look() && !diagnosis_.stalled()) return;
  reports_.clear();
  std::vector<Coordinator::Outgoing> told;
  diagnosis_.look(now, running_, coordinator_ ? &*coordinator_ : nullptr, &reports_, &told);
  for (Message& report : reports_) post(std::move(report));
  dispatch(told);
}

void Progress::note(FlightKind kind, int peer, const Message& message) {
  FlightEvent event;
  event.kind = kind;
  event.peer = peer;
  event.detail = static_cast<std::uint8_t>(message.index());
  std::visit(
      [&event](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, Call> || std::is_same_v<T, Activate> ||
                      std::is_same_v<T, Held> || std::is_same_v<T, StallTold> ||
                      std::is_same_v<T, Defer>) {
          event.channel = m.channel;
          event.round = m.round;
        } else if constexpr (std::is_same_v<T, Flush> || std::is_same_v<T, Leave> ||
                             std::is_same_v<T, SetMode> || std::is_same_v<T, Members>) {
          event.channel = m.channel;
        }
        if constexpr (std::is_same_v<T, Call>) event.other = m.waiting ? 1 : 0;
      },
      message);
  recorder()->record(event);
}

void Progress::drain_outbox() {
  if (outbox_empty_.load()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(outbox_, outgoing_);
    if (running_.size() != channels_.size()) running_ = channels_;
  }
  for (const Message& message : outgoing_) {
    if (rank_ == 0) {
      to_coordinator(0, message);
    } else {
      send(0, message);
    }
  }
  outgoing_.clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  outbox_empty_.store(outbox_.empty());
}

void Progress::send(int to, const Message& message) {
  note(FlightKind::kSend, to, message);
  encode(message, &wire_);
  transport_->send_control(to, wire_.data(), wire_.size());
}

void Progress::to_coordinator(int from, const Message& message) {
  note(FlightKind::kReceive, from, message);
  decisions_.clear();
  coordinator_->handle(from, message, clock_->now(), &decisions_);
  dispatch(decisions_);
}

void Progress::dispatch(const std::vector<Coordinator::Outgoing>& outgoing) {
  if (coordinator_) {
    for (const std::string& notice : coordinator_->take_notices()) {
      diagnosis_.say(Notices::Level::kWarning, notice);
    }
  }
  for (const auto& [to, message] : outgoing) {
    const int first = to == Coordinator::kEverybody ? 0 : to;
    const int last = to == Coordinator::kEverybody ? size_ - 1 : to;
    for (int rank = last; rank >= first; --rank) {  // the others first, then this one
      if (rank != rank_) {
        send(rank, message);
      } else {
        from_coordinator(message);
      }
    }
  }
}

Channel* Progress::channel(ChannelId id) { return id < by_id_.size() ? by_id_[id] : nullptr; }

void Progress::from_coordinator(const Message& message) {
  last_sign_of_life_.store(clock_->now());
  if (const auto* m = std::get_if<Activate>(&message)) {
    if (Channel* target = channel(m->channel)) {
      if (coordinator_) target->set_grace_seconds(coordinator_->grace_seconds(m->channel));
      if (Status status = target->on_activate(*m); !status.ok()) fail_everywhere(status);
    }
  } else if (const auto* m = std::get_if<Members>(&message)) {
    if (Channel* target = channel(m->channel)) target->on_members(*m);
  } else if (const auto* m = std::get_if<Defer>(&message)) {
    if (Channel* target = channel(m->channel)) {
      if (Status status = target->on_defer(*m); !status.ok()) fail_everywhere(status);
    }
  } else if (const auto* m = std::get_if<Deliver>(&message)) {
    if (Channel* target = channel(m->channel)) {
      if (Status status = target->on_deliver(*m); !status.ok()) fail_everywhere(status);
    }
  } else if (const auto* m = std::get_if<Freeze>(&message)) {
    freeze(*m);
  } else if (std::holds_alternative<Thaw>(message)) {
    frozen_ = false;
  } else if (const auto* m = std::get_if<ChannelOpened>(&message)) {
    if (auto target = find_channel(m->name)) {
      if (by_id_.size() <= m->channel) by_id_.resize(m->channel + 1, nullptr);
      by_id_[m->channel] = target.get();
      target->on_opened(m->channel);
    }
  } else if (const auto* m = std::get_if<ChannelRejected>(&message)) {
    if (auto target = find_channel(m->name)) target->on_rejected(m->reason);
  } else if (const auto* m = std::get_if<PeerLost>(&message)) {
    fail(Status(ErrorCode::kPeerLost, "rank " + std::to_string(m->peer) + " was lost (" +
                                          m->reason + "); restart it or the job"));
  } else if (const auto* m = std::get_if<Aborted>(&message)) {
    fail(Status(ErrorCode::kAborted,
                "rank " + std::to_string(m->peer) + " ended the job: " + m->reason));
  } else if (std::holds_alternative<AllGone>(message)) {
    all_gone_.store(true);
  } else if (const auto* m = std::get_if<StallTold>(&message)) {
    diagnosis_.on_told(*m, channel(m->channel));
  }
}

void Progress::freeze(const Freeze& message) {
  frozen_ = true;
  Frozen answer{message.number, {}};
  for (Channel* known : by_id_)
    answer.published.push_back(known == nullptr ? 0 : known->published());
  post(std::move(answer));
}

void Progress::fail(Status status) { latch(std::move(status), /*here=*/true); }

std::string Progress::objection(int from, const Message& message) {
  if (rank_ == 0) {
    std::string why = objection_of_coordinator(message, size_);
    return why.empty() ? coordinator_->objection(from, message) : why;
  }
  if (from != 0) return "only rank 0 speaks to other ranks";
  if (std::string why = objection_of_rank(message, rank_, size_); !why.empty()) return why;
  const auto unknown = [this](ChannelId id) {
    return channel(id) != nullptr ? std::string()
                                  : "channel " + std::to_string(id) + " is not open here";
  };
  const auto unnamed = [this](const std::string& name) {
    return find_channel(name) != nullptr ? std::string()
                                         : "there is no channel '" + name + "' here";
  };
  if (const auto* m = std::get_if<Activate>(&message)) return unknown(m->channel);
  if (const auto* m = std::get_if<Members>(&message)) return unknown(m->channel);
  if (const auto* m = std::get_if<Defer>(&message)) return unknown(m->channel);
  if (const auto* m = std::get_if<Deliver>(&message)) return unknown(m->channel);
  if (const auto* m = std::get_if<ChannelRejected>(&message)) return unnamed(m->name);
  if (const auto* m = std::get_if<ChannelOpened>(&message)) {
    if (channel(m->channel) != nullptr) {
      return "there is a channel " + std::to_string(m->channel) + " already";
    }
    return unnamed(m->name);
  }
  return {};
}

void Progress::on_control(int from, const std::uint8_t* data, std::size_t size) {
  const std::optional<Message> message = decode(data, size);
  std::string why;
  if (!message.has_value()) {
    why = "of " + std::to_string(size) + " bytes, which cannot be read";
  } else if (std::string objects = objection(from, *message); !objects.empty()) {
    why = "(" + describe_kind(*message) + ") that makes no sense: " + objects;
  }
  if (!why.empty()) {
    fail_everywhere(
        Status(ErrorCode::kInternal, "rank " + std::to_string(rank_) + " got a message of rank " +
                                         std::to_string(from) + " " + why +
                                         "; do all ranks run the same version of hvd_partial?"));
    return;
  }
  if (rank_ == 0) {
    to_coordinator(from, *message);
  } else {
    note(FlightKind::kReceive, from, *message);
    from_coordinator(*message);
  }
}

void Progress::on_peer_lost(int peer, const std::string& reason) {
  ++peers_lost_;
  if (all_gone_.load()) return;
  FlightEvent event;
  event.kind = FlightKind::kPeerLost;
  event.peer = peer;
  recorder()->record(event);
  if (rank_ == 0) {
    decisions_.clear();
    if (coordinator_->on_peer_lost(peer, reason, &decisions_)) dispatch(decisions_);
  } else {
    fail(Status(ErrorCode::kPeerLost, "rank " + std::to_string(peer) + " was lost (" + reason +
                                          "); restart it or the job"));
  }
}

}  // namespace hvd_partial

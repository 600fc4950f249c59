// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/progress.h"

#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <new>
#include <sstream>
#include <utility>

namespace hvd_partial {
namespace {

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
       << " bytes each; a smaller max_lag needs less (max_lag + 2 times the size of the tensors)";
  return Status(ErrorCode::kInternal, text.str());
}

}  // namespace

Progress::Progress(Transport* transport, const Clock* clock)
    : transport_(transport),
      clock_(clock),
      rank_(transport->rank()),
      size_(transport->size()),
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
  if (std::shared_ptr<Channel> existing = find_channel(options.name)) {
    if (existing->options().signature != options.signature) {
      return Status(ErrorCode::kInvalidArgument,
                    "rank " + std::to_string(rank_) + ": channel '" + options.name +
                        "' is open already, with other tensors or options; use another name");
    }
    *channel = std::move(existing);
    return {};
  }
  OpenChannel message{options.name, options.signature, options.member.mode, options.grace_seconds};
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

void Progress::fail_everywhere(Status status) {
  Abort message{status.message()};
  if (!failure_.set(std::move(status))) return;
  post(std::move(message));
}

// ---- the progress thread ----------------------------------------------------

bool Progress::step() {
  bool moved = transport_->progress();
  moved |= !outbox_empty_.load();
  drain_outbox();
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
    if (!channel->advance()) continue;
    moved = true;
    if (!channel->reduce_status().ok()) fail_everywhere(channel->reduce_status());
  }
  return moved;
}

double Progress::next_deadline() const {
  return coordinator_ && !failure_.failed() ? coordinator_->next_deadline() : kNever;
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
  encode(message, &wire_);
  transport_->send_control(to, wire_.data(), wire_.size());
}

void Progress::to_coordinator(int from, const Message& message) {
  decisions_.clear();
  coordinator_->handle(from, message, clock_->now(), &decisions_);
  dispatch(decisions_);
}

void Progress::dispatch(const std::vector<Coordinator::Outgoing>& outgoing) {
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
    if (Channel* target = channel(m->channel)) target->on_members(m->bits);
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
  }
}

void Progress::fail(Status status) { failure_.set(std::move(status)); }

void Progress::on_control(int from, const std::uint8_t* data, std::size_t size) {
  const std::optional<Message> message = decode(data, size);
  if (!message.has_value()) {
    fail_everywhere(
        Status(ErrorCode::kInternal, "rank " + std::to_string(rank_) +
                                         " cannot read a message of rank " + std::to_string(from) +
                                         "; do all ranks run the same version of hvd_partial?"));
    return;
  }
  if (from == 0 && rank_ != 0) {
    from_coordinator(*message);
  } else if (rank_ == 0) {
    to_coordinator(from, *message);
  }
}

void Progress::on_peer_lost(int peer, const std::string& reason) {
  ++peers_lost_;
  if (all_gone_.load()) return;
  if (rank_ == 0) {
    decisions_.clear();
    if (coordinator_->on_peer_lost(peer, reason, &decisions_)) dispatch(decisions_);
  } else {
    fail(Status(ErrorCode::kPeerLost, "rank " + std::to_string(peer) + " was lost (" + reason +
                                          "); restart it or the job"));
  }
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/in_process_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "transport/lost_peers.h"

namespace hvd_partial {
namespace {

constexpr std::uint32_t kAddressMagic = 0x48564449;  // "HVDI"
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Life of a bulk message. The receiver takes it from kOffered (kEager: the data
// are in the message) over kCopying to kCopied; its sender may withdraw it from
// kOffered only.
enum class Stage { kIdle, kOffered, kEager, kCopying, kCopied, kWithdrawn };

// Goes to the receiver and comes back to its sender, who uses it again.
struct BulkMessage {
  std::atomic<Stage> stage{Stage::kIdle};
  int from = 0;
  std::uint64_t tag = 0;
  const void* data = nullptr;
  std::size_t size = 0;
  std::vector<std::uint8_t> copy;    // of an eager message
  Completion* completion = nullptr;  // the sender's; null: done or abandoned

  // Afterwards nobody reads the sender's buffer any more.
  void withdraw() {
    Stage expected = Stage::kOffered;
    if (stage.compare_exchange_strong(expected, Stage::kWithdrawn)) return;
    while (stage.load() == Stage::kCopying) std::this_thread::yield();
  }
  // False if it has been withdrawn.
  bool start_copy() {
    Stage expected = Stage::kOffered;
    if (stage.compare_exchange_strong(expected, Stage::kCopying)) return true;
    return expected == Stage::kEager;
  }
};

struct Event {
  enum class Kind { kControl, kBulk, kReturned, kLost };
  Kind kind = Kind::kControl;
  int from = 0;
  double time = 0;                 // when it becomes visible
  std::uint64_t sequence = 0;      // for events of the same time
  std::vector<std::uint8_t> data;  // kControl, and the reason of kLost
  BulkMessage* message = nullptr;  // kBulk, kReturned
};

struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Event> events;                      // not taken by the owner yet
  std::vector<std::vector<std::uint8_t>> spares;  // used buffers of kControl
  std::deque<BulkMessage> messages;               // every one the owner has sent
  bool woken = false;
  bool made = false;
  bool closed = false;
};

bool same_stream(const Event& earlier, const Event& later) {
  if (earlier.from != later.from) return false;
  if (later.kind == Event::Kind::kBulk) {
    return earlier.kind == Event::Kind::kBulk && earlier.message->tag == later.message->tag;
  }
  // What a rank has said comes before the news of its end.
  return later.kind != Event::Kind::kReturned && earlier.kind == Event::Kind::kControl;
}

}  // namespace

class InProcessState {
 public:
  using Delay = std::function<double(int from, int to, bool control)>;

  explicit InProcessState(int size)
      : mailboxes_(static_cast<std::size_t>(size)), dead_(static_cast<std::size_t>(size)) {}

  void set_delay(Delay delay) { delay_ = std::move(delay); }
  void set_eager_bytes(std::size_t bytes) { eager_bytes_ = bytes; }

  int size() const { return static_cast<int>(mailboxes_.size()); }
  bool has_rank(int rank) const { return rank >= 0 && rank < size(); }
  bool has_clock() const { return delay_ != nullptr; }
  std::size_t eager_bytes() const { return eager_bytes_; }
  Mailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }
  std::atomic<bool>& dead(int rank) { return dead_[static_cast<std::size_t>(rank)]; }
  double time() const { return time_.load(); }

  void set_time(double seconds) {
    if (seconds > time_.load()) time_.store(seconds);
  }

  double delay(int from, int to, bool control) const {
    return has_clock() && from != to ? std::max(0.0, delay_(from, to, control)) : 0.0;
  }

  // Puts `event` into the mailbox of `to`, `seconds` from now. `data` is what
  // a control message says.
  void post(int to, Event event, double seconds, const std::uint8_t* data = nullptr,
            std::size_t size = 0) {
    Mailbox& box = mailbox(to);
    {
      const std::lock_guard<std::mutex> lock(box.mutex);
      if (box.closed || dead(to).load()) return;
      event.sequence = next_sequence_.fetch_add(1);
      event.time = has_clock() ? time() + seconds : 0.0;
      if (has_clock()) {
        for (const Event& other : box.events) {
          if (same_stream(other, event)) event.time = std::max(event.time, other.time);
        }
      }
      if (data != nullptr && !box.spares.empty()) {
        event.data = std::move(box.spares.back());
        box.spares.pop_back();
      }
      if (data != nullptr) event.data.assign(data, data + size);
      box.events.push_back(std::move(event));
    }
    box.changed.notify_one();
  }

  void post_lost(int peer, int to, double seconds, const std::string& reason) {
    Event event;
    event.kind = Event::Kind::kLost;
    event.from = peer;
    event.data.assign(reason.begin(), reason.end());
    post(to, std::move(event), seconds);
  }

  // Moves what is visible by now from a rank's mailbox to `taken`, in order.
  void take(int rank, std::vector<Event>* taken) {
    Mailbox& box = mailbox(rank);
    const std::lock_guard<std::mutex> lock(box.mutex);
    // `taken` holds buffers of the last time.
    for (Event& event : *taken) {
      if (event.data.capacity() > 0) box.spares.push_back(std::move(event.data));
    }
    taken->clear();
    if (!has_clock()) {
      std::swap(*taken, box.events);
      return;
    }
    const double now = time();
    const auto visible = std::stable_partition(box.events.begin(), box.events.end(),
                                               [now](const Event& e) { return e.time > now; });
    std::move(visible, box.events.end(), std::back_inserter(*taken));
    box.events.erase(visible, box.events.end());
    std::sort(taken->begin(), taken->end(), [](const Event& a, const Event& b) {
      return a.time != b.time ? a.time < b.time : a.sequence < b.sequence;
    });
  }

  double next_delivery() {
    const double now = time();
    double next = kInfinity;
    for (Mailbox& box : mailboxes_) {
      const std::lock_guard<std::mutex> lock(box.mutex);
      for (const Event& event : box.events) {
        if (event.time > now) next = std::min(next, event.time);
      }
    }
    return next;
  }

  void kill(int rank, double notice_seconds, const std::vector<int>& witnesses) {
    if (!has_rank(rank) || dead(rank).exchange(true)) return;
    {
      Mailbox& box = mailbox(rank);
      const std::lock_guard<std::mutex> lock(box.mutex);
      box.events.clear();
      for (BulkMessage& message : box.messages) message.withdraw();
    }
    for (const int witness : witnesses) {
      if (!has_rank(witness) || witness == rank) continue;
      post_lost(rank, witness, notice_seconds, "rank " + std::to_string(rank) + " was killed");
    }
  }

 private:
  Delay delay_;
  std::size_t eager_bytes_ = 0;
  std::deque<Mailbox> mailboxes_;
  std::deque<std::atomic<bool>> dead_;
  std::atomic<double> time_{0.0};
  std::atomic<std::uint64_t> next_sequence_{0};
};

namespace {

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(int rank, std::shared_ptr<InProcessState> state)
      : rank_(rank), state_(std::move(state)), lost_(state_->size()) {}
  ~InProcessTransport() override { InProcessTransport::close(); }

  int rank() const override { return rank_; }
  int size() const override { return state_->size(); }
  std::vector<std::uint8_t> address() const override;
  Status connect(const std::vector<std::vector<std::uint8_t>>& addresses) override;
  void set_listener(TransportListener* listener) override {
    listener_ = listener;
    listened_ |= listener != nullptr;
  }

  void send_control(int to, const std::uint8_t* data, std::size_t size) override;
  void send(int to, std::uint64_t tag, const void* data, std::size_t size,
            Completion* completion) override;
  void recv(int from, std::uint64_t tag, void* data, std::size_t size,
            Completion* completion) override;
  void cancel_all() override;
  bool progress() override;
  void wait(double seconds) override;
  void wake() override;
  void close() override;
  TransportCounters counters() const override { return counters_; }

 private:
  struct Receive {
    int from;
    std::uint64_t tag;
    void* data;
    std::size_t size;
    Completion* completion;
  };

  bool dead() const { return state_->dead(rank_).load(); }
  bool may_transfer(int peer, std::uint64_t tag, Completion* completion);
  BulkMessage* take_message();
  void arrive(BulkMessage* message);
  // False if the sender has withdrawn the message: `receive` goes on waiting.
  bool copy(BulkMessage* message, const Receive& receive);
  void give_back(BulkMessage* message);
  void on_returned(BulkMessage* message);
  bool may_report() const { return listened_ && (!inbox_.empty() || lost_.has_unreported()); }
  void report();

  const int rank_;
  const std::shared_ptr<InProcessState> state_;
  LostPeers lost_;
  TransportListener* listener_ = nullptr;
  bool listened_ = false;
  bool connected_ = false;
  bool cancelled_ = false;
  bool closed_ = false;
  std::vector<Event> taken_;  // what progress() works on
  std::vector<Event> inbox_;  // control messages for the listener
  std::vector<Receive> receives_;
  std::vector<BulkMessage*> unexpected_;
  std::vector<BulkMessage*> outstanding_;  // sent, not done
  std::vector<BulkMessage*> free_;
  TransportCounters counters_;
};

std::vector<std::uint8_t> InProcessTransport::address() const {
  std::vector<std::uint8_t> bytes;
  ByteWriter writer(&bytes);
  writer.put(kAddressMagic);
  writer.put(static_cast<std::int32_t>(rank_));
  writer.put(reinterpret_cast<std::uint64_t>(state_.get()));
  return bytes;
}

Status InProcessTransport::connect(const std::vector<std::vector<std::uint8_t>>& addresses) {
  const std::string me = "rank " + std::to_string(rank_) + ": ";
  if (connected_ || closed_) {
    return Status(ErrorCode::kInvalidArgument,
                  me + (closed_ ? "connect() after close()" : "connected already"));
  }
  if (addresses.size() != static_cast<std::size_t>(size())) {
    return Status(ErrorCode::kInvalidArgument, me + "got addresses of " +
                                                   std::to_string(addresses.size()) +
                                                   " ranks, expected " + std::to_string(size()));
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    ByteReader reader(addresses[i].data(), addresses[i].size());
    const bool is_address = reader.get<std::uint32_t>() == kAddressMagic;
    const auto rank = reader.get<std::int32_t>();
    const bool same_fabric =
        reader.get<std::uint64_t>() == reinterpret_cast<std::uint64_t>(state_.get());
    if (!is_address || !reader.finished()) {
      return Status(ErrorCode::kInvalidArgument, me + "the address of rank " + std::to_string(i) +
                                                     " is not an address of this transport");
    }
    if (rank != static_cast<std::int32_t>(i) || !same_fabric) {
      return Status(ErrorCode::kMismatch, me + "the address of rank " + std::to_string(i) +
                                              " comes from rank " + std::to_string(rank) +
                                              (same_fabric ? "" : " of another fabric"));
    }
  }
  connected_ = true;
  return {};
}

void InProcessTransport::send_control(int to, const std::uint8_t* data, std::size_t size) {
  static constexpr std::uint8_t kNothing = 0;
  if (closed_ || dead() || !state_->has_rank(to) || size > kMaxControlBytes) return;
  if ((!connected_ && to != rank_) || lost_.contains(to)) return;
  ++counters_.control_messages_sent;
  Event event;
  event.kind = Event::Kind::kControl;
  event.from = rank_;
  state_->post(to, std::move(event), state_->delay(rank_, to, true), size == 0 ? &kNothing : data,
               size);
}

bool InProcessTransport::may_transfer(int peer, std::uint64_t tag, Completion* completion) {
  if (dead()) return false;  // a dead process learns nothing
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    completion->status =
        Status(code, "rank " + std::to_string(rank_) + ": transfer with rank " +
                         std::to_string(peer) + " (tag " + std::to_string(tag) + "): " + why);
    completion->done = true;
    return false;
  };
  if (!connected_ || closed_) return refuse(ErrorCode::kNotConnected, "not connected");
  if (cancelled_) return refuse(ErrorCode::kAborted, "all transfers have been cancelled");
  if (!state_->has_rank(peer)) {
    return refuse(ErrorCode::kInvalidArgument, "there is no such rank");
  }
  if (tag >> 48 != 0) {  // as UCX
    return refuse(ErrorCode::kInvalidArgument, "the tag has more than 48 bits");
  }
  if (lost_.contains(peer)) return refuse(ErrorCode::kPeerLost, "that rank is lost");
  return true;
}

BulkMessage* InProcessTransport::take_message() {
  if (!free_.empty()) {
    BulkMessage* message = free_.back();
    free_.pop_back();
    return message;
  }
  Mailbox& box = state_->mailbox(rank_);
  const std::lock_guard<std::mutex> lock(box.mutex);  // kill() walks through them
  return &box.messages.emplace_back();
}

void InProcessTransport::send(int to, std::uint64_t tag, const void* data, std::size_t size,
                              Completion* completion) {
  if (!may_transfer(to, tag, completion)) return;
  BulkMessage* message = take_message();
  message->from = rank_;
  message->tag = tag;
  message->data = data;
  message->size = size;
  message->completion = completion;
  const bool eager = size <= state_->eager_bytes();
  if (eager) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    message->copy.assign(bytes, bytes + size);
    message->data = message->copy.data();
    message->completion = nullptr;
    counters_.bulk_bytes_sent += size;
    completion->done = true;
  } else {
    outstanding_.push_back(message);
  }
  message->stage.store(eager ? Stage::kEager : Stage::kOffered);
  Event event;
  event.kind = Event::Kind::kBulk;
  event.from = rank_;
  event.message = message;
  state_->post(to, std::move(event), state_->delay(rank_, to, false));
}

void InProcessTransport::recv(int from, std::uint64_t tag, void* data, std::size_t size,
                              Completion* completion) {
  if (!may_transfer(from, tag, completion)) return;
  const Receive receive{from, tag, data, size, completion};
  for (auto it = unexpected_.begin(); it != unexpected_.end();) {
    BulkMessage* message = *it;
    if (message->from != from || message->tag != tag) {
      ++it;
      continue;
    }
    it = unexpected_.erase(it);
    if (copy(message, receive)) return;
  }
  receives_.push_back(receive);
}

void InProcessTransport::arrive(BulkMessage* message) {
  if (cancelled_) {
    // Nobody will ever want it. It stays with its sender as unfinished.
    return;
  }
  const auto match = std::find_if(receives_.begin(), receives_.end(), [&](const Receive& r) {
    return r.from == message->from && r.tag == message->tag;
  });
  if (match == receives_.end()) {
    unexpected_.push_back(message);
    return;
  }
  if (copy(message, *match)) receives_.erase(match);
}

bool InProcessTransport::copy(BulkMessage* message, const Receive& receive) {
  if (!message->start_copy()) {
    give_back(message);
    return false;
  }
  const std::size_t size = message->size;
  if (size == receive.size) {
    if (size > 0) std::memcpy(receive.data, message->data, size);
    counters_.bulk_bytes_received += size;
  } else {
    receive.completion->status = Status(
        ErrorCode::kMismatch,
        "rank " + std::to_string(rank_) + ": receive from rank " + std::to_string(receive.from) +
            " (tag " + std::to_string(receive.tag) + ", " + std::to_string(receive.size) +
            " bytes) failed: got " + std::to_string(size) + " bytes");
  }
  receive.completion->done = true;
  message->stage.store(Stage::kCopied);
  give_back(message);
  return true;
}

void InProcessTransport::give_back(BulkMessage* message) {
  Event event;
  event.kind = Event::Kind::kReturned;
  event.from = rank_;
  event.message = message;
  const int to = message->from;
  state_->post(to, std::move(event), state_->delay(rank_, to, false));
}

void InProcessTransport::on_returned(BulkMessage* message) {
  if (Completion* completion = std::exchange(message->completion, nullptr)) {
    outstanding_.erase(std::find(outstanding_.begin(), outstanding_.end(), message));
    counters_.bulk_bytes_sent += message->size;
    completion->done = true;
  }
  message->stage.store(Stage::kIdle);
  free_.push_back(message);
}

void InProcessTransport::cancel_all() {
  cancelled_ = true;
  receives_.clear();
  unexpected_.clear();
  for (BulkMessage* message : outstanding_) {
    message->withdraw();
    message->completion = nullptr;
  }
  outstanding_.clear();
}

bool InProcessTransport::progress() {
  if (closed_ || dead()) return false;
  state_->take(rank_, &taken_);
  bool moved = !taken_.empty();
  for (Event& event : taken_) {
    switch (event.kind) {
      case Event::Kind::kControl:
        if (!lost_.contains(event.from)) inbox_.push_back(std::move(event));
        break;
      case Event::Kind::kBulk:
        arrive(event.message);
        break;
      case Event::Kind::kReturned:
        on_returned(event.message);
        break;
      case Event::Kind::kLost:
        lost_.add(event.from, std::string(event.data.begin(), event.data.end()));
        break;
    }
  }
  if (may_report()) {
    moved = true;
    report();
  }
  return moved;
}

void InProcessTransport::report() {
  // The listener may close() this transport.
  for (std::size_t i = 0; i < inbox_.size(); ++i) {
    Event& event = inbox_[i];
    if (listener_ == nullptr) break;
    listener_->on_control(event.from, event.data.data(), event.data.size());
  }
  std::swap(inbox_, taken_);  // take() uses their buffers again
  inbox_.clear();
  for (const auto& [peer, reason] : lost_.take_unreported()) {
    if (listener_ != nullptr) listener_->on_peer_lost(peer, reason);
  }
}

void InProcessTransport::wait(double seconds) {
  if (state_->has_clock() || may_report()) return;
  Mailbox& box = state_->mailbox(rank_);
  std::unique_lock<std::mutex> lock(box.mutex);
  const auto ready = [&] { return box.woken || (!box.events.empty() && !closed_ && !dead()); };
  if (seconds < 0) {
    box.changed.wait(lock, ready);
  } else {
    // A day is as good as for ever.
    box.changed.wait_for(lock, std::chrono::duration<double>(std::min(seconds, 86400.0)), ready);
  }
  box.woken = false;
}

void InProcessTransport::wake() {
  Mailbox& box = state_->mailbox(rank_);
  {
    const std::lock_guard<std::mutex> lock(box.mutex);
    box.woken = true;
  }
  box.changed.notify_one();
}

void InProcessTransport::close() {
  if (std::exchange(closed_, true)) return;
  listener_ = nullptr;
  cancel_all();
  {
    Mailbox& box = state_->mailbox(rank_);
    const std::lock_guard<std::mutex> lock(box.mutex);
    box.closed = true;
    box.events.clear();
  }
  if (dead() || !connected_) return;
  for (int other = 0; other < size(); ++other) {
    if (other == rank_ || (rank_ != 0 && other != 0)) continue;
    state_->post_lost(rank_, other, state_->delay(rank_, other, true),
                      "rank " + std::to_string(rank_) + " has closed its end");
  }
}

}  // namespace

InProcessFabric::InProcessFabric(int size) : state_(std::make_shared<InProcessState>(size)) {}

InProcessFabric::~InProcessFabric() = default;

void InProcessFabric::set_delay(std::function<double(int, int, bool)> delay) {
  state_->set_delay(std::move(delay));
}

void InProcessFabric::set_eager_bytes(std::size_t bytes) { state_->set_eager_bytes(bytes); }

std::unique_ptr<Transport> InProcessFabric::make(int rank) {
  if (!state_->has_rank(rank)) return nullptr;
  {
    Mailbox& box = state_->mailbox(rank);
    const std::lock_guard<std::mutex> lock(box.mutex);
    if (std::exchange(box.made, true)) return nullptr;
  }
  return std::make_unique<InProcessTransport>(rank, state_);
}

void InProcessFabric::set_time(double seconds) { state_->set_time(seconds); }

double InProcessFabric::time() const { return state_->time(); }

double InProcessFabric::next_delivery() const { return state_->next_delivery(); }

void InProcessFabric::kill(int rank, double notice_seconds) {
  std::vector<int> everybody;
  for (int other = 0; other < state_->size(); ++other) everybody.push_back(other);
  kill(rank, notice_seconds, everybody);
}

void InProcessFabric::kill(int rank, double notice_seconds, const std::vector<int>& witnesses) {
  state_->kill(rank, notice_seconds, witnesses);
}

}  // namespace hvd_partial

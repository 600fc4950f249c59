// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/channel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "collective/kernels.h"
#include "engine/round_tag.h"

namespace hvd_partial {
namespace {

std::vector<TensorSpec> with_header_block(std::vector<TensorSpec> tensors, int size) {
  tensors.push_back({DType::kFloat64, HeaderBlock::elements(size)});
  return tensors;
}

// Results that can lie in the ring. With latest_only: one being read and a
// newer one.
int ring_capacity(const Member::Options& options) {
  return options.latest_only ? 2 : options.max_lag;
}

// Whether results are kept for ranks that do not answer at present.
bool keeps_results(const ChannelOptions& options, int size) {
  return size > 1 && !options.member.latest_only;
}

// ... and with them the send buffer, the one being reduced, the scratch. In
// replay a round is joined only while the ring has room, which saves one; but
// the newest sum is kept, though it may have been read.
int buffer_count(const ChannelOptions& options, int size) {
  const int ring = ring_capacity(options.member);
  if (options.member.latest_only) return ring + 3;
  return ring + (keeps_results(options, size) ? 3 : 2);
}

}  // namespace

Channel::Channel(ChannelOptions options, Transport* transport, const Clock* clock,
                 const FailureLatch* failure, ChannelHost* host)
    : options_(std::move(options)),
      layout_(with_header_block(options_.tensors, transport->size())),
      rank_(transport->rank()),
      size_(transport->size()),
      clock_(clock),
      failure_(failure),
      host_(host),
      recorder_(host->recorder()),
      member_(options_.member),
      pool_(layout_.bytes(), buffer_count(options_, size_)),
      kept_(transport, &pool_, layout_.bytes(), keeps_results(options_, size_)),
      send_buffer_(pool_.take()),
      ring_(ring_capacity(options_.member)),
      compute_seconds_of_(size_, 0.0),
      transport_(transport),
      scratch_(pool_.take()),
      allreduce_(std::make_unique<Allreduce>(transport, &layout_, scratch_)) {
  const auto reserve = [this](RoundHeader* header) {
    header->contributions_of.assign(size_, 0);
    header->dropped_of.assign(size_, 0);
    header->compute_seconds_of.assign(size_, 0.0);
  };
  for (Result& result : ring_) reserve(&result.header);
  reserve(&header_);
}

Channel::Memory Channel::memory(const ChannelOptions& options, int size) {
  // In floating point: what is asked for may be more than fits a size_t.
  double bytes = HeaderBlock::elements(size) * sizeof(double);
  for (const TensorSpec& tensor : options.tensors) {
    bytes += static_cast<double>(tensor.elements) * static_cast<double>(dtype_size(tensor.dtype));
  }
  return {buffer_count(options, size), bytes};
}

double* Channel::header_block(std::uint8_t* buffer) const {
  return reinterpret_cast<double*>(buffer + layout_.offset(options_.tensors.size()));
}

// ---- errors -----------------------------------------------------------------

Status Channel::describe(const Status& status) const {
  return Status(status.code(), "rank " + std::to_string(rank_) + ", channel '" + options_.name +
                                   "', round " + std::to_string(member_.published()) + " (" +
                                   to_string(member_.mode()) + "): " + status.message());
}

Status Channel::misuse(const std::string& what) const {
  return describe(Status(ErrorCode::kInvalidArgument, what));
}

Status Channel::check() const {
  if (failure_->failed()) return describe(failure_->status());
  if (!rejected_.ok()) return describe(rejected_);
  return {};
}

// ---- the user's thread ------------------------------------------------------

Status Channel::deposit(const void* const* tensors, double compute_seconds, bool* skipped) {
  *skipped = false;
  const double started = clock_->now();
  Member::Deposit deposit{};
  std::uint8_t* buffer = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Status status = check(); !status.ok()) return status;
    if (member_.left()) return misuse("this rank has left the channel; open another one");
    if (member_.flushing()) {
      return misuse("allreduce during a flush; take all its results first");
    }
    if (member_.depositing()) {
      return misuse("two threads call allreduce at the same time; use a channel for each");
    }
    if (!std::isfinite(compute_seconds)) return misuse("compute_seconds is not a finite number");
    record(FlightKind::kCall, member_.applied(),
           static_cast<std::int32_t>(member_.joined() - member_.applied()));
    deposit = member_.begin_deposit();
    buffer = send_buffer_;
    if (compute_seconds < 0) compute_seconds = returned_at_ < 0 ? 0 : started - returned_at_;
    compute_seconds_ = compute_seconds;
  }

  const auto& specs = options_.tensors;
  if (options_.skip_nonfinite) {
    for (std::size_t i = 0; i < specs.size() && !*skipped; ++i) {
      *skipped = !all_finite(specs[i].dtype, tensors[i], specs[i].elements);
    }
  }
  if (!*skipped) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const auto copy = deposit.accumulate ? add_scaled : copy_scaled;
      copy(specs[i].dtype, buffer + layout_.offset(i), tensors[i], specs[i].elements,
           deposit.weight);
    }
  }

  const std::lock_guard<std::mutex> lock(mutex_);
  Call call = member_.end_deposit(*skipped);
  call.compute_seconds = compute_seconds;
  ++deposits_;
  skipped_ += *skipped ? 1 : 0;
  called_at_ = deposited_at_ = clock_->now();
  deposit_seconds_ += called_at_ - started;
  record(FlightKind::kDeposit, call.round, member_.held_contributions(), *skipped ? 1 : 0,
         call.waiting ? 1 : 0);
  send(call);
  return {};
}

void Channel::note_return(int* available, bool* flushed) {
  *available = member_.takeable();
  *flushed = member_.flush_ended() && *available == 0;
  member_.pin();
  returned_at_ = clock_->now();
  if (called_at_ >= 0) blocked_seconds_ += returned_at_ - called_at_;
  called_at_ = -1;
  record(FlightKind::kReturn, member_.published(), *available, 0, *flushed ? 1 : 0);
}

bool Channel::poll(int* available, bool* flushed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!check().ok() || !member_.ready()) return false;
  note_return(available, flushed);
  return true;
}

Status Channel::wait(double seconds, int* available, bool* flushed) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (member_.left()) return misuse("this rank has left the channel");
  const auto done = [this] { return settled(); };
  if (seconds < 0) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), done)) {
    return describe(Status(ErrorCode::kTimeout, "no result yet"));
  }
  if (Status status = check(); !status.ok()) return status;
  note_return(available, flushed);
  return {};
}

Status Channel::notify(std::function<void()> ready) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (ready_ != nullptr) return misuse("somebody waits for this channel already");
  ready_ = std::move(ready);
  announce(std::move(lock));
  return {};
}

Status Channel::header(int index, const RoundHeader** header) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Status status = check(); !status.ok()) return status;
  if (index < 0 || index >= member_.results()) {
    return misuse("there is no result " + std::to_string(index) + " in the ring; it holds " +
                  std::to_string(member_.results()));
  }
  *header = &result(index).header;
  return {};
}

Status Channel::read(int index, void* const* tensors) {
  const RoundHeader* found = nullptr;
  if (Status status = header(index, &found); !status.ok()) return status;
  const std::uint8_t* buffer = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    buffer = result(index).buffer;
  }
  const auto& specs = options_.tensors;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    copy_divided(specs[i].dtype, tensors[i], buffer + layout_.offset(i), specs[i].elements,
                 found->divisor);
  }
  return {};
}

void Channel::drop_results(int count) {
  for (int i = 0; i < count; ++i) {
    result(0).buffer = nullptr;
    kept_.release(result(0).header.round);
    ring_head_ = (ring_head_ + 1) % ring_.size();
  }
}

Status Channel::release(int count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count < 0 || count > member_.results()) {
    return misuse("cannot release " + std::to_string(count) + " results; the ring holds " +
                  std::to_string(member_.results()));
  }
  drop_results(count);
  member_.release(count);
  record(FlightKind::kRelease, member_.applied(), count);
  if (member_.can_join()) host_->wake();  // a full ring had kept this rank from a round
  return {};
}

Status Channel::begin_flush() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Status status = check(); !status.ok()) return status;
  if (member_.left()) return misuse("this rank has left the channel");
  if (member_.flushing()) return misuse("a flush is under way already");
  member_.begin_flush();
  called_at_ = clock_->now();
  record(FlightKind::kFlush, member_.published());
  send(Flush{});
  return {};
}

Status Channel::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (member_.left()) return {};
  drop_results(member_.results());
  Leave message;
  message.holds_contribution = member_.leave();
  message.round = member_.published();
  called_at_ = -1;
  record(FlightKind::kLeave, member_.published(), 0, 0, message.holds_contribution ? 1 : 0);
  send(message);
  host_->wake();
  return {};
}

Status Channel::set_mode(const Mode& mode) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Status status = check(); !status.ok()) return status;
  if (!valid(mode, size_)) {
    return misuse("mode " + to_string(mode) + " does not fit " + std::to_string(size_) + " ranks");
  }
  SetMode message;
  message.mode = mode;
  record(FlightKind::kMode, member_.published(), mode.quorum, 0,
         static_cast<std::uint8_t>(mode.kind));
  send(message);
  return {};
}

Status Channel::to_bits(const std::vector<int>& ranks, std::vector<std::uint64_t>* bits) const {
  bits->clear();
  if (ranks.empty()) return {};
  bits->assign((size_ + 63) / 64, 0);
  int others = size_;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size_) {
      return misuse("cannot exclude rank " + std::to_string(rank) + " of " + std::to_string(size_) +
                    "; ranks are 0 to " + std::to_string(size_ - 1));
    }
    const std::uint64_t bit = 1ull << (rank % 64);
    others -= ((*bits)[rank / 64] & bit) == 0 ? 1 : 0;
    (*bits)[rank / 64] |= bit;
  }
  if (others == 0) return misuse("cannot exclude all ranks; leave one that rounds wait for");
  return {};
}

Status Channel::exclude(const std::vector<int>& ranks, bool drop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Status status = check(); !status.ok()) return status;
  Exclude message;
  if (Status status = to_bits(ranks, &message.bits); !status.ok()) return status;
  message.drop = drop;
  send(std::move(message));
  return {};
}

Status Channel::decide(std::uint64_t number, const Mode& mode, const std::vector<int>& excluded,
                       bool drop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Status status = check(); !status.ok()) return status;
  if (!valid(mode, size_)) {
    return misuse("mode " + to_string(mode) + " does not fit " + std::to_string(size_) + " ranks");
  }
  Decide message;
  if (Status status = to_bits(excluded, &message.excluded); !status.ok()) return status;
  message.number = number;
  message.mode = mode;
  message.drop = drop;
  send(std::move(message));
  return {};
}

ChannelStats Channel::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_now();
}

ChannelStats Channel::stats_now() const {
  ChannelStats stats;
  stats.rounds = member_.published();
  stats.contributions = total_contributions_;
  stats.deposits = deposits_;
  stats.late_deposits = member_.late_deposits();
  stats.skipped = skipped_;
  stats.dropped = dropped_;
  stats.excluded = excluded_;
  stats.missed = member_.missed();
  stats.made_without = made_without_;
  stats.deferred = deferred_rounds_;
  stats.lag = member_.lag();
  stats.largest_lag = member_.largest_lag();
  stats.blocked_seconds = blocked_seconds_;
  stats.deposit_seconds = deposit_seconds_;
  stats.contribution_weight = total_weight_;
  stats.full_rounds = full_rounds_;
  stats.flushes = flushes_;
  stats.grace_seconds = grace_seconds_.load();
  stats.mode = member_.mode();
  stats.compute_seconds_of = compute_seconds_of_;
  return stats;
}

std::optional<ChannelId> Channel::id() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return id_;
}

bool Channel::has_spoken() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unsent_.empty() || !rejected_.ok();
}

void Channel::send(Message message) {
  if (!id_.has_value()) {
    unsent_.push_back(std::move(message));
    return;
  }
  std::visit(
      [this](auto& m) {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, Call> || std::is_same_v<T, Flush> ||
                      std::is_same_v<T, Leave> || std::is_same_v<T, SetMode> ||
                      std::is_same_v<T, Exclude> || std::is_same_v<T, Decide> ||
                      std::is_same_v<T, Held>) {
          m.channel = *id_;
        }
      },
      message);
  host_->post(std::move(message));
}

void Channel::announce(std::unique_lock<std::mutex> lock) {
  if (!settled()) return;
  std::function<void()> ready;
  if (ready_ != nullptr) {
    ready = std::exchange(ready_, nullptr);
    int available = 0;
    bool flushed = false;
    note_return(&available, &flushed);
  }
  lock.unlock();
  changed_.notify_all();
  if (ready != nullptr) ready();
}

// ---- the progress thread ----------------------------------------------------

void Channel::on_opened(ChannelId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  id_ = id;
  recorded_id_.store(id, std::memory_order_relaxed);
  record(FlightKind::kOpened, 0);
  for (Message& message : std::exchange(unsent_, {})) send(std::move(message));
}

void Channel::on_rejected(const std::string& reason) {
  std::unique_lock<std::mutex> lock(mutex_);
  rejected_ = Status(ErrorCode::kMismatch, reason);
  record(FlightKind::kRejected, 0);
  announce(std::move(lock));
}

void Channel::on_members(const Members& message) {
  MembersFrom coming{activated_rounds_, {}, {}, false};
  for (int rank = 0; rank < size_; ++rank) {
    if (!has_rank(message.bits, rank)) continue;
    coming.members.push_back(rank);
    if (has_rank(message.excluded, rank)) coming.excluded.push_back(rank);
  }
  coming.drop = message.drop && has_rank(message.excluded, rank_);
  record(FlightKind::kMembers, activated_rounds_, static_cast<std::int32_t>(coming.members.size()));
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_.keep_from(message.keep_from);
  coming_members_.push_back(std::move(coming));
}

Status Channel::on_activate(const Activate& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++activated_rounds_;
  record(FlightKind::kActivate, message.round, message.mode.quorum, message.flush ? 1 : 0,
         static_cast<std::uint8_t>(message.mode.kind));
  if (member_.on_activate(message)) return {};
  return describe(Status(ErrorCode::kInternal, "round " + std::to_string(message.round) +
                                                   " was activated out of turn by rank 0"));
}

bool Channel::try_join() {
  double compute_seconds = 0;
  int from = -1;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!member_.can_join()) return false;
    // A round keeps the members it was activated with, even if it starts here
    // only after the next change was announced.
    while (!coming_members_.empty() && coming_members_.front().round <= member_.joined()) {
      members_ = std::move(coming_members_.front().members);
      excluded_ = std::move(coming_members_.front().excluded);
      drop_own_ = coming_members_.front().drop;
      coming_members_.erase(coming_members_.begin());
    }
    const Activate next = member_.next();
    given_to_ = next.deferred == kNoRound ? next.round : next.deferred;
    from = giver(next.round);
    const bool made_here = std::binary_search(members_.begin(), members_.end(), rank_);
    if (from < 0 && made_here && next.deferred != kNoRound) {
      DeferredReductions::Reduction ended;
      if (!deferred_.take(next.deferred, &ended)) return false;
      own_ = member_.pass();
      own_.contributions = ended.own.contributions;
      reducing_ = ended.buffer;
      pool_.give_back(ended.scratch);
      source_ = Source::kDeferredReduction;
      record(FlightKind::kJoin, own_.round, own_.contributions, 0);
      return true;
    }
    // Buffers can be short while results are given to another rank.
    if ((from < 0 && !made_here) || pool_.available() == 0) return false;
    if (from >= 0) {
      own_ = member_.pass();
      ++made_without_;
    } else {
      own_ = member_.join(drop_own_);
      dropped_ += own_.dropped;
      reducing_ = std::exchange(send_buffer_, pool_.take());
      compute_seconds = compute_seconds_;
    }
  }
  if (from >= 0) {
    record(FlightKind::kJoin, own_.round, 0, 0);
    receive(from);
    return true;
  }
  record(FlightKind::kJoin, own_.round, own_.contributions,
         static_cast<std::int32_t>(members_.size()));
  if (own_.contributions == 0) std::memset(reducing_, 0, layout_.bytes());
  HeaderBlock::write(header_block(reducing_), size_, rank_, own_, compute_seconds);
  allreduce_->start(members_, round_tag(*id_, RoundTransfer::kReduction, own_.round), reducing_);
  source_ = Source::kReduction;
  if (options_.leave_out_seconds > 0) report_at_ = clock_->now() + options_.leave_out_seconds / 2;
  begin_deferred();
  return true;
}

bool Channel::sum_is_here() {
  switch (source_) {
    case Source::kNone:
      return false;
    case Source::kReduction:
      return allreduce_->step();
    case Source::kDeferredReduction:
      return true;
    case Source::kOtherRank:
      if (received_.done && !received_.status.ok()) bad_round_ = received_.status;
      return received_.done;
  }
  return false;
}

void Channel::publish() {
  if (const int bad = HeaderBlock::read(header_block(reducing_), size_, &header_); bad >= 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bad_round_ = describe(
        Status(ErrorCode::kInternal, "the numbers of rank " + std::to_string(bad) +
                                         " in the result make no sense; do all ranks run the same "
                                         "version of hvd_partial?"));
    return;
  }
  header_.round = own_.round;
  header_.mode = own_.mode;
  header_.flush = own_.flush;
  header_.included = own_.contributions > 0;
  header_.given_to = given_to_;
  switch (options_.average) {
    case Average::kNone:
      header_.divisor = 1;
      break;
    case Average::kSize:
      header_.divisor = size_;
      break;
    case Average::kContributions:
      header_.divisor = std::max(header_.contributions, 1);
      break;
  }

  std::unique_lock<std::mutex> lock(mutex_);
  record(FlightKind::kPublish, header_.round, header_.contributions, header_.contributors,
         static_cast<std::uint8_t>(header_.mode.kind));
  total_contributions_ += header_.contributions;
  total_weight_ += header_.weight;
  header_.total_contributions = total_contributions_;
  bool full = true;
  for (int rank = 0; rank < size_; ++rank) {
    if (header_.contributions_of[rank] > 0) {
      compute_seconds_of_[rank] = header_.compute_seconds_of[rank];
    } else {
      full = false;
    }
  }
  if (full) ++full_rounds_;
  if (header_.flush) ++flushes_;
  const int replaced = member_.superseded(header_.contributions);
  for (int i = 1; i <= replaced; ++i) {
    Result& unread = result(member_.results() - i);
    unread.buffer = nullptr;
    kept_.release(unread.header.round);
  }
  source_ = Source::kNone;
  std::uint8_t* sum = std::exchange(reducing_, nullptr);
  const bool to_be_read = member_.publish(own_, header_.contributions);
  if (to_be_read) {
    Result& newest = result(member_.results() - 1);
    newest.buffer = sum;
    std::swap(newest.header, header_);
  }
  kept_.add(own_.round, sum, to_be_read);
  end_held();
  if (member_.left()) {
    Leave message;
    message.round = member_.published();
    send(message);
  }
  announce(std::move(lock));
}

bool Channel::advance() {
  bool moved = tend_others();
  if (!bad_round_.ok()) return moved;
  if (source_ == Source::kNone) moved |= try_join();
  if (sum_is_here()) {
    if (!round_status().ok()) return true;
    publish();
    moved = true;
  }
  if (report_at_ != kNever) report_held();
  return moved;
}

void Channel::on_failure() {
  allreduce_->reset();
  deferred_.reset();
  source_ = Source::kNone;
  report_at_ = kNever;
  std::unique_lock<std::mutex> lock(mutex_);
  announce(std::move(lock));
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What a channel does while a process that takes part in it does not answer,
// and afterwards: see protocol/silence.cc.

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "engine/channel.h"
#include "engine/round_tag.h"

namespace hvd_partial {

std::uint64_t Channel::published() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return member_.published();
}

Status Channel::on_defer(const Defer& message) {
  if (source_ == Source::kReduction && own_.round == message.round) {
    if (Status status = set_aside(/*wanted=*/true); !status.ok()) return status;
    publish_null();
    return {};
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  // It has ended here: rank 0 learns that from this rank's answer to Freeze.
  if (message.round < member_.published()) return {};
  if (message.round < member_.joined() || message.round >= member_.activated_rounds()) {
    return describe(Status(ErrorCode::kInternal, "round " + std::to_string(message.round) +
                                                     " was deferred out of turn by rank 0"));
  }
  to_defer_.push_back(message);
  return {};
}

Status Channel::on_deliver(const Deliver& message) {
  if (message.from == rank_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.deliver(message);
    return {};
  }
  deliveries_.push_back(message);
  const bool under_way =
      source_ == Source::kReduction && own_.round >= message.first && own_.round <= message.last;
  if (!under_way) return {};
  // It has ended on other ranks: their sum is as good, and here now.
  if (Status status = set_aside(/*wanted=*/false); !status.ok()) return status;
  receive(message.from);
  return {};
}

int Channel::giver(std::uint64_t round) const {
  for (const Deliver& delivery : deliveries_) {
    if (round >= delivery.first && round <= delivery.last) return delivery.from;
  }
  return -1;
}

void Channel::receive(int from) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    reducing_ = pool_.take();
  }
  received_ = {};
  source_ = Source::kOtherRank;
  transport_->recv(from, round_tag(*id_, RoundTransfer::kDelivery, own_.round), reducing_,
                   layout_.bytes(), &received_);
}

Status Channel::set_aside(bool wanted) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // For each a buffer, a scratch, and perhaps one of zeros, beyond what the
    // present round needs.
    const int missing = 3 * (deferred_.count() + 1) - extra_buffers_;
    try {
      if (missing > 0) pool_.grow(static_cast<std::size_t>(missing));
    } catch (const std::bad_alloc&) {
      return describe(Status(ErrorCode::kInternal,
                             "out of memory: a process does not answer, and to go on without "
                             "it takes " +
                                 std::to_string(missing) + " more buffers of " +
                                 std::to_string(layout_.bytes()) + " bytes"));
    }
    extra_buffers_ += std::max(missing, 0);
    DeferredReductions::Reduction held;
    held.wanted = wanted;
    held.allreduce = std::move(allreduce_);
    held.buffer = std::exchange(reducing_, nullptr);
    held.scratch = std::exchange(scratch_, pool_.take());
    held.own = own_;
    deferred_.add(std::move(held));
  }
  allreduce_ = std::make_unique<Allreduce>(transport_, &layout_, scratch_);
  return {};
}

void Channel::begin_deferred() {
  const auto found = std::find_if(to_defer_.begin(), to_defer_.end(),
                                  [this](const Defer& defer) { return defer.round == own_.round; });
  if (found == to_defer_.end()) return;
  to_defer_.erase(found);
  if (Status status = set_aside(/*wanted=*/true); !status.ok()) {
    bad_round_ = status;
    return;
  }
  publish_null();
}

void Channel::publish_null() {
  std::unique_lock<std::mutex> lock(mutex_);
  ++deferred_rounds_;
  record(FlightKind::kPublish, own_.round, 0, 0, static_cast<std::uint8_t>(own_.mode.kind));
  if (kept_.needs(own_.round)) {
    // Somebody had been left out before, and gets this round as any other. The
    // buffer is one of those that set_aside() has added.
    std::uint8_t* nothing = pool_.take();
    std::memset(nothing, 0, layout_.bytes());
    kept_.add(own_.round, nothing, /*to_be_read=*/false);
  }
  source_ = Source::kNone;
  member_.publish(own_, 0);
  end_held();
  if (member_.left()) {
    Leave message;
    message.round = member_.published();
    send(message);
  }
  announce(std::move(lock));
}

bool Channel::tend_others() {
  bool moved = false;
  if (deferred_.count() > 0 && deferred_.step()) {
    moved = true;
    if (!deferred_.status().ok()) bad_round_ = deferred_.status();
    DeferredReductions::Reduction unwanted;
    while (deferred_.take_unwanted(&unwanted)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      pool_.give_back(unwanted.buffer);
      pool_.give_back(unwanted.scratch);
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!kept_.delivering()) return moved;
  const std::size_t before = pool_.available();
  if (Status status = kept_.step(); !status.ok()) bad_round_ = describe(status);
  return moved || pool_.available() != before || !bad_round_.ok();
}

void Channel::report_held() {
  if (source_ == Source::kNone || clock_->now() < report_at_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  report_at_ = kNever;
  reported_ = true;
  Held message;
  message.round = own_.round;
  message.cause = HeldCause::kReducing;
  message.seconds = options_.leave_out_seconds / 2;
  send(message);
}

void Channel::end_held() {
  report_at_ = kNever;
  const auto past = [this](const Deliver& delivery) { return delivery.last < member_.published(); };
  deliveries_.erase(std::remove_if(deliveries_.begin(), deliveries_.end(), past),
                    deliveries_.end());
  if (!std::exchange(reported_, false)) return;
  Held message;
  message.round = own_.round;
  send(message);
}

}  // namespace hvd_partial

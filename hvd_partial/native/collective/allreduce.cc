// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "collective/allreduce.h"

#include <algorithm>
#include <string>

#include "collective/kernels.h"

namespace hvd_partial {

static_assert(Plan::kMaxSteps <= std::size_t{1} << Allreduce::kTagBits,
              "the number of a step is the low part of its tag");

namespace {

bool overlap(std::size_t begin, std::size_t end, std::size_t other_begin, std::size_t other_end) {
  return begin < other_end && other_begin < end;
}

}  // namespace

Allreduce::Allreduce(Transport* transport, const TensorLayout* layout, std::uint8_t* scratch,
                     Planner planner)
    : transport_(transport), layout_(layout), scratch_(scratch), planner_(planner) {}

void Allreduce::start(const std::vector<int>& members, std::uint64_t tag_base,
                      std::uint8_t* buffer) {
  tag_base_ = tag_base;
  buffer_ = buffer;
  active_ = true;
  finished_ = 0;
  posted_ = 0;
  status_ = {};
  if (members == members_) return;

  const auto place = std::lower_bound(members.begin(), members.end(), transport_->rank());
  if (place == members.end() || *place != transport_->rank()) {
    status_ = Status(ErrorCode::kInternal, "rank " + std::to_string(transport_->rank()) +
                                               " started a reduction it is no member of");
    return;
  }
  plan_ = planner_(static_cast<int>(members.size()), static_cast<int>(place - members.begin()),
                   layout_->bytes());
  members_ = members;
  // Each step under way needs its own part of the scratch memory.
  const std::size_t slots =
      plan_.scratch_bytes == 0 ? kWindow : layout_->bytes() / plan_.scratch_bytes;
  window_ = std::clamp<std::size_t>(slots, 1, kWindow);
}

bool Allreduce::step() {
  if (!active() || !status_.ok()) return true;
  const std::size_t count = plan_.steps.size();
  while (finished_ < count) {
    while (posted_ < count && posted_ - finished_ < window_ && may_post(plan_.steps[posted_])) {
      post(posted_);
      ++posted_;
    }
    const Transfers& oldest = transfers_[finished_ % kWindow];
    for (const Completion* completion : {&oldest.send, &oldest.recv}) {
      if (completion->done && !completion->status.ok()) {
        status_ = completion->status;
        return true;
      }
    }
    if (!oldest.send.done || !oldest.recv.done) return false;
    finish(finished_);
    ++finished_;
  }
  active_ = false;
  return true;
}

void Allreduce::reset() {
  active_ = false;
  finished_ = 0;
  posted_ = 0;
  status_ = {};
}

// Steps are finished in their order, so what a step adds may lie anywhere. But
// no step may send what an earlier one has yet to write, nor have the transport
// write where an earlier one still reads or writes.
bool Allreduce::may_post(const PlanStep& next) const {
  for (std::size_t number = finished_; number < posted_; ++number) {
    const PlanStep& earlier = plan_.steps[number];
    if (overlap(next.send_begin, next.send_end, earlier.recv_begin, earlier.recv_end)) {
      return false;
    }
    if (next.add) continue;
    if (overlap(next.recv_begin, next.recv_end, earlier.recv_begin, earlier.recv_end) ||
        overlap(next.recv_begin, next.recv_end, earlier.send_begin, earlier.send_end)) {
      return false;
    }
  }
  return true;
}

void Allreduce::post(std::size_t number) {
  const PlanStep& step = plan_.steps[number];
  Transfers& transfers = transfers_[number % kWindow];
  transfers.send = {};
  transfers.recv = {};
  const std::uint64_t tag = tag_base_ | number;
  // Receives first: then a message that is already here needs no extra copy.
  if (step.recv_from == PlanStep::kNobody) {
    transfers.recv.done = true;
  } else {
    std::uint8_t* to =
        step.add ? scratch_ + number % window_ * plan_.scratch_bytes : buffer_ + step.recv_begin;
    transport_->recv(members_[static_cast<std::size_t>(step.recv_from)], tag, to,
                     step.recv_end - step.recv_begin, &transfers.recv);
  }
  if (step.send_to == PlanStep::kNobody) {
    transfers.send.done = true;
  } else {
    transport_->send(members_[static_cast<std::size_t>(step.send_to)], tag,
                     buffer_ + step.send_begin, step.send_end - step.send_begin, &transfers.send);
  }
}

void Allreduce::finish(std::size_t number) {
  const PlanStep& step = plan_.steps[number];
  if (step.recv_from == PlanStep::kNobody || !step.add) return;
  add_range(*layout_, buffer_, step.recv_begin, step.recv_end,
            scratch_ + number % window_ * plan_.scratch_bytes);
}

}  // namespace hvd_partial

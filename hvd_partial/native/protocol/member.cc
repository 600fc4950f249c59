// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/member.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace hvd_partial {

Member::Member(Options options) : options_(std::move(options)), mode_(options_.mode) {
  activated_.reserve(2);
  unreleased_.reserve(options_.max_lag + 2);
}

Member::Deposit Member::begin_deposit() {
  depositing_ = true;
  flush_ = FlushState::kNone;
  // The next round joined here takes the contribution; the weights it was
  // computed on had seen all rounds before applied().
  const std::uint64_t rounds_late = joined_ - applied();
  if (rounds_late > 0) ++late_deposits_;
  const auto& weights = options_.staleness_weights;
  const std::size_t index = std::min<std::uint64_t>(rounds_late, weights.size() - 1);
  deposit_weight_ = full_weights(mode_) ? 1.0 : weights[index];
  return {deposit_weight_, contributions_ > 0};
}

Call Member::end_deposit(bool skipped) {
  depositing_ = false;
  if (skipped) {
    ++skipped_;
  } else {
    ++contributions_;
    weight_ += deposit_weight_;
  }
  awaited_ = published_;
  Call call;
  call.round = applied();
  call.waiting = unreleased_.empty();
  return call;
}

void Member::release(int count) {
  count = std::min(count, results());
  if (count == 0) return;
  applied_ = unreleased_[count - 1] + 1;
  unreleased_.erase(unreleased_.begin(), unreleased_.begin() + count);
  pinned_ = std::max(0, pinned_ - count);
}

int Member::takeable() const {
  if (flush_ != FlushState::kEnded) return results();
  const auto later = std::lower_bound(unreleased_.begin(), unreleased_.end(), flush_end_);
  return static_cast<int>(later - unreleased_.begin());
}

bool Member::leave() {
  left_ = true;
  unreleased_.clear();
  pinned_ = 0;
  return contributions_ > 0;
}

bool Member::ready() const {
  if (!unreleased_.empty()) return true;
  switch (flush_) {
    case FlushState::kRunning:
      return false;
    case FlushState::kEnded:
      return true;
    case FlushState::kNone:
      return published_ > awaited_;
  }
  return false;
}

bool Member::on_activate(const Activate& message) {
  if (message.round != joined_ + activated_.size()) return false;
  activated_.push_back(message);
  mode_ = message.mode;
  return true;
}

bool Member::can_join() const {
  if (activated_.empty() || depositing_ || joined_ != published_) return false;
  if (left_ || options_.latest_only) return true;
  return lag() < options_.max_lag;
}

Snapshot Member::join(bool drop) {
  Snapshot snapshot;
  snapshot.round = joined_++;
  snapshot.mode = activated_.front().mode;
  snapshot.flush = activated_.front().flush;
  snapshot.contributions = std::exchange(contributions_, 0);
  snapshot.weight = std::exchange(weight_, 0);
  snapshot.skipped = std::exchange(skipped_, 0);
  if (drop) {
    snapshot.dropped = std::exchange(snapshot.contributions, 0);
    snapshot.weight = 0;
  }
  activated_.erase(activated_.begin());
  return snapshot;
}

Snapshot Member::pass() {
  Snapshot snapshot;
  snapshot.round = joined_++;
  snapshot.mode = activated_.front().mode;
  snapshot.flush = activated_.front().flush;
  activated_.erase(activated_.begin());
  return snapshot;
}

bool Member::publish(const Snapshot& own, int contributions) {
  if (own.flush) {
    flush_ = FlushState::kEnded;
    flush_end_ = own.round + 1;
  }
  const bool kept = contributions > 0 && !left_;
  if (kept) {
    if (unreleased_.empty()) applied_ = published_;
    const int replaced = superseded(contributions);
    missed_ += replaced;
    unreleased_.resize(unreleased_.size() - replaced);
    unreleased_.push_back(own.round);
  }
  ++published_;
  largest_lag_ = std::max(largest_lag_, lag());
  return kept;
}

std::string Member::describe() const {
  constexpr const char* kFlush[] = {"", ", flushing", ", flushed"};
  std::ostringstream text;
  text << to_string(mode_) << ", joined " << joined_ << ", published " << published_ << ", applied "
       << applied() << ", awaits " << awaited_ << ", holds " << contributions_ << " of weight "
       << weight_ << ", skipped " << skipped_ << ", ring";
  for (const std::uint64_t round : unreleased_) text << ' ' << round;
  text << " pinned " << pinned_ << ", activated";
  for (const Activate& next : activated_) {
    text << ' ' << next.round << ' ' << to_string(next.mode) << (next.flush ? " flush" : "");
  }
  text << kFlush[static_cast<std::size_t>(flush_)];
  if (flush_ == FlushState::kEnded) text << " before " << flush_end_;
  if (depositing_) text << ", depositing with weight " << deposit_weight_;
  if (left_) text << ", left";
  return text.str();
}

}  // namespace hvd_partial

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "collective/plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collective/tensor_layout.h"

namespace hvd_partial {

namespace {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

// Part `i` of `count` about equal ones, cut at kAlignment; parts may be empty.
Range part_of(Range range, std::size_t count, std::size_t i) {
  constexpr std::size_t kUnit = TensorLayout::kAlignment;
  const std::size_t units = (range.size() + kUnit - 1) / kUnit;
  const auto boundary = [&](std::size_t part) {
    // units / count whole ones each, and one more for the first few.
    const std::size_t unit = units / count * part + std::min(part, units % count);
    return std::min(range.end, range.begin + unit * kUnit);
  };
  return {boundary(i), boundary(i + 1)};
}

class PlanBuilder {
 public:
  // `transfers`: how many exchanges the plan will have, to share the tags out.
  explicit PlanBuilder(std::size_t transfers)
      : max_chunks_(
            std::max<std::size_t>(1, Plan::kMaxSteps / std::max<std::size_t>(1, transfers))) {}

  // `longest`: of the ranges that any member transfers in this exchange. All
  // members pass the same, so that their steps have the same numbers.
  void exchange(std::size_t longest, int send_to, Range send, int recv_from, Range recv, bool add) {
    const std::size_t wanted = (longest + Plan::kChunkBytes - 1) / Plan::kChunkBytes;
    const std::size_t chunks = std::clamp<std::size_t>(wanted, 1, max_chunks_);
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      PlanStep step;
      const Range out = part_of(send, chunks, chunk);
      if (send_to != PlanStep::kNobody && out.size() > 0) {
        step.send_to = send_to;
        step.send_begin = out.begin;
        step.send_end = out.end;
      }
      const Range in = part_of(recv, chunks, chunk);
      if (recv_from != PlanStep::kNobody && in.size() > 0) {
        step.recv_from = recv_from;
        step.recv_begin = in.begin;
        step.recv_end = in.end;
        step.add = add;
        if (add) plan_.scratch_bytes = std::max(plan_.scratch_bytes, in.size());
      }
      plan_.steps.push_back(step);
    }
  }

  // This member has no part in an exchange of the others.
  void pass(std::size_t longest) {
    exchange(longest, PlanStep::kNobody, {}, PlanStep::kNobody, {}, false);
  }

  Plan take() { return std::move(plan_); }

 private:
  std::size_t max_chunks_;
  Plan plan_;
};

// Of `members`, the largest power of two stay (`kept`); the others, which are
// the odd ones at the start, hand their data to their left neighbour and get
// the sum from it in the end.
struct Fold {
  Fold(int members, int index) {
    while (2 * kept <= members) {
      kept *= 2;
      ++exchanges;
    }
    const int extra = members - kept;
    folded = extra > 0;
    if (index >= 2 * extra) {
      place = index - extra;
    } else if (index % 2 == 0) {
      place = index / 2;
      partner = index + 1;
    } else {
      partner = index - 1;
    }
    extra_ = extra;
  }

  bool stays() const { return place >= 0; }
  // Member at a place 0..kept-1.
  int member(int at) const { return at < extra_ ? 2 * at : at + extra_; }

  int kept = 1;
  int exchanges = 0;  // log2(kept)
  bool folded = false;
  int place = -1;
  int partner = PlanStep::kNobody;

 private:
  int extra_ = 0;
};

void fold_in(PlanBuilder* builder, const Fold& fold, Range all) {
  if (!fold.folded) return;
  if (fold.partner == PlanStep::kNobody) {
    builder->pass(all.size());
  } else if (fold.stays()) {
    builder->exchange(all.size(), PlanStep::kNobody, {}, fold.partner, all, true);
  } else {
    builder->exchange(all.size(), fold.partner, all, PlanStep::kNobody, {}, false);
  }
}

void fold_out(PlanBuilder* builder, const Fold& fold, Range all) {
  if (!fold.folded) return;
  if (fold.partner == PlanStep::kNobody) {
    builder->pass(all.size());
  } else if (fold.stays()) {
    builder->exchange(all.size(), fold.partner, all, PlanStep::kNobody, {}, false);
  } else {
    builder->exchange(all.size(), PlanStep::kNobody, {}, fold.partner, all, false);
  }
}

std::size_t longest_part(std::size_t bytes, std::size_t count) {
  return part_of({0, bytes}, count, 0).size();
}

}  // namespace

Plan recursive_doubling_plan(int members, int index, std::size_t bytes) {
  if (members < 2 || bytes == 0) return {};
  const Fold fold(members, index);
  const Range all{0, bytes};
  PlanBuilder builder(static_cast<std::size_t>(fold.exchanges) + 2);
  fold_in(&builder, fold, all);
  for (int distance = 1; distance < fold.kept; distance *= 2) {
    if (!fold.stays()) {
      builder.pass(bytes);
      continue;
    }
    // Both compute a + b of the same two numbers, which does not depend on the order.
    const int other = fold.member(fold.place ^ distance);
    builder.exchange(bytes, other, all, other, all, true);
  }
  fold_out(&builder, fold, all);
  return builder.take();
}

Plan halving_doubling_plan(int members, int index, std::size_t bytes) {
  if (members < 2 || bytes == 0) return {};
  const Fold fold(members, index);
  const Range all{0, bytes};
  PlanBuilder builder(2 * static_cast<std::size_t>(fold.exchanges) + 2);
  fold_in(&builder, fold, all);

  struct Halving {
    int other;
    std::size_t longest;
    Range kept;
    Range given;
  };
  std::vector<Halving> halvings;
  Range range = all;
  std::size_t longest = bytes;
  for (int distance = fold.kept / 2; distance > 0; distance /= 2) {
    longest = longest_part(longest, 2);
    const bool upper = fold.stays() && (fold.place & distance) != 0;
    const Range kept = part_of(range, 2, upper ? 1 : 0);
    const Range given = part_of(range, 2, upper ? 0 : 1);
    const int other = fold.stays() ? fold.member(fold.place ^ distance) : PlanStep::kNobody;
    halvings.push_back({other, longest, kept, given});
    range = kept;
  }
  for (const Halving& halving : halvings) {
    builder.exchange(halving.longest, halving.other, halving.given, halving.other, halving.kept,
                     true);
  }
  for (auto halving = halvings.rbegin(); halving != halvings.rend(); ++halving) {
    builder.exchange(halving->longest, halving->other, halving->kept, halving->other,
                     halving->given, false);
  }
  fold_out(&builder, fold, all);
  return builder.take();
}

Plan ring_plan(int members, int index, std::size_t bytes) {
  if (members < 2 || bytes == 0) return {};
  const auto count = static_cast<std::size_t>(members);
  const int next = (index + 1) % members;
  const int previous = (index + members - 1) % members;
  const std::size_t longest = longest_part(bytes, count);
  const auto slice = [&](int number) {
    return part_of({0, bytes}, count, static_cast<std::size_t>((number + 2 * members) % members));
  };
  PlanBuilder builder(2 * (count - 1));
  // After these, slice index + 1 is summed here, in an order that starts at
  // its own number, and nowhere else; then it travels on as it is.
  for (int turn = 0; turn < members - 1; ++turn) {
    builder.exchange(longest, next, slice(index - turn), previous, slice(index - turn - 1), true);
  }
  for (int turn = 0; turn < members - 1; ++turn) {
    builder.exchange(longest, next, slice(index - turn + 1), previous, slice(index - turn), false);
  }
  return builder.take();
}

Plan choose_plan(int members, int index, std::size_t bytes) {
  constexpr std::size_t kLatencyBound = std::size_t{32} << 10;
  constexpr std::size_t kBandwidthBound = std::size_t{8} << 20;
  // Beyond this a ring has more exchanges than there are tags.
  constexpr int kRingLimit = Plan::kMaxSteps / 2;
  if (bytes <= kLatencyBound) return recursive_doubling_plan(members, index, bytes);
  if (bytes <= kBandwidthBound || members > kRingLimit) {
    return halving_doubling_plan(members, index, bytes);
  }
  return ring_plan(members, index, bytes);
}

}  // namespace hvd_partial

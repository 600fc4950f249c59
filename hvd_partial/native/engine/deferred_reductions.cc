// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "engine/deferred_reductions.h"

#include <utility>

namespace hvd_partial {

bool DeferredReductions::step() {
  bool ended = false;
  for (Reduction& reduction : reductions_) {
    if (!reduction.allreduce->active() || !reduction.allreduce->step()) continue;
    ended = true;
    if (!reduction.allreduce->status().ok()) status_ = reduction.allreduce->status();
  }
  return ended;
}

template <typename Predicate>
bool DeferredReductions::take_if(Predicate wanted, Reduction* reduction) {
  for (auto found = reductions_.begin(); found != reductions_.end(); ++found) {
    if (found->allreduce->active() || !wanted(*found)) continue;
    *reduction = std::move(*found);
    reductions_.erase(found);
    return true;
  }
  return false;
}

bool DeferredReductions::take(std::uint64_t round, Reduction* reduction) {
  return take_if([round](const Reduction& r) { return r.wanted && r.own.round == round; },
                 reduction);
}

bool DeferredReductions::take_unwanted(Reduction* reduction) {
  return take_if([](const Reduction& r) { return !r.wanted; }, reduction);
}

void DeferredReductions::reset() {
  for (Reduction& reduction : reductions_) reduction.allreduce->reset();
}

}  // namespace hvd_partial

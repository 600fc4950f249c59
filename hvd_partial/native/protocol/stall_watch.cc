// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "protocol/stall_watch.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace hvd_partial {
namespace {

std::string over_text(const Stall& stall, double now) {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.1f s", now - stall.since);
  std::string text = "channel '" + stall.name + "', round " + std::to_string(stall.round) + " (" +
                     to_string(stall.mode) + "): goes on after " + seconds;
  if (stall.kind == Stall::Kind::kFlush) text += " of waiting in a flush";
  if (!stall.waited_for.empty()) {
    std::vector<int> last;
    for (const Stall::Missing& missing : stall.waited_for) last.push_back(missing.rank);
    text += "; the last that was waited for: " + Stall::list(last);
  }
  return text;
}

}  // namespace

void StallWatch::look(const std::vector<Stall>& stalls, double now, std::vector<Line>* lines) {
  for (auto known = announced_.begin(); known != announced_.end();) {
    const auto current = std::find_if(stalls.begin(), stalls.end(),
                                      [&](const Stall& stall) { return stall.same_as(*known); });
    if (current != stalls.end()) {
      // While a reduction ends, ranks report by turns that it goes on.
      if (known->kind != Stall::Kind::kReduction) *known = *current;
      ++known;
    } else {
      lines->push_back({*known, true, over_text(*known, now)});
      known = announced_.erase(known);
    }
  }
  for (const Stall& stall : stalls) {
    if (now - stall.since < warning_seconds_) continue;
    // Known already; or a flush that waits for what another line tells about.
    const bool told = std::any_of(announced_.begin(), announced_.end(), [&](const Stall& known) {
      return known.same_as(stall) ||
             (stall.kind == Stall::Kind::kFlush && known.channel == stall.channel);
    });
    if (told) continue;
    announced_.push_back(stall);
    lines->push_back({stall, false, stall.describe(now)});
  }
}

}  // namespace hvd_partial

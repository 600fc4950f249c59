// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "exploration.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace hvd_partial {
namespace {

// Keys met, and nothing else: open addressing, no allocation for each.
class KeySet {
 public:
  KeySet() : slots_(1 << 12) {}

  bool insert(Key key) {
    if (key == Key{}) key.low = 1;  // all zero is an empty slot
    if (2 * size_ >= slots_.size()) grow();
    return place(key);
  }

 private:
  bool place(const Key& key) {
    for (std::size_t i = key.low;; ++i) {
      Key& slot = slots_[i & (slots_.size() - 1)];
      if (slot == key) return false;
      if (slot != Key{}) continue;
      slot = key;
      ++size_;
      return true;
    }
  }
  void grow() {
    std::vector<Key> old(2 * slots_.size());
    old.swap(slots_);
    size_ = 0;
    for (const Key& key : old) {
      if (key != Key{}) place(key);
    }
  }

  std::vector<Key> slots_;  // a power of two of them
  std::size_t size_ = 0;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.low; }
};

World after(const World& world, const World::Event& event) {
  World next = world;
  next.happen(event);
  return next;
}

class Explorer {
 public:
  Explorer(const Job& job, const Search& search) : search_(search) {
    enter(World(job), {});
    while (!path_.empty() && outcome_.broken.empty()) {
      Frame& top = path_.back();
      if (top.next == top.events.size) {
        path_.pop_back();
        continue;
      }
      if (outcome_.states >= search_.most_states) {
        outcome_.complete = false;
        break;
      }
      const World::Event event = top.events.all[static_cast<std::size_t>(top.next++)];
      enter(after(top.world, event), event);
    }
    std::vector<Key>& ends = outcome_.end_keys;
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }

  Outcome take() { return std::move(outcome_); }

 private:
  struct Frame {
    World world;
    World::Events events;
    int next;
    World::Event by;
  };

  void enter(World world, const World::Event& event) {
    const Key key = world.key(search_.reduced);
    const bool fresh = seen_.insert(key);
    if (world.broken().empty() && !fresh && !search_.check_keys) return;
    World::Events events = world.events();
    std::string wrong;
    if (search_.check_keys && world.broken().empty()) wrong = check_key(world, events, key);
    if (world.broken().empty() && wrong.empty() && !fresh) return;
    ++outcome_.states;
    if (world.broken().empty() && events.size == 0) {
      ++outcome_.ends;
      world.check_end();
      if (search_.keep_ends) outcome_.end_keys.push_back(world.key(/*symmetry=*/true));
    }
    const World::Events urgent = world.urgent();
    if (search_.check_urgent && wrong.empty()) wrong = check_urgent(world, events, urgent);
    if (search_.reduced && urgent.size > 0) {
      events = {};
      events.add(urgent.all[0].kind, urgent.all[0].rank);
    }
    if (wrong.empty()) wrong = world.broken();
    path_.push_back({std::move(world), events, 0, event});
    if (!wrong.empty()) tell(wrong);
  }

  void tell(const std::string& wrong) {
    outcome_.broken = wrong + "; after:";
    for (std::size_t i = 1; i < path_.size(); ++i) {
      outcome_.broken += "\n  " + path_[i].by.describe();
    }
    outcome_.broken += "\n" + path_.back().world.describe();
  }

  // The keys of what follows, whoever looks: equal for equal keys.
  std::string check_key(const World& world, const World::Events& events, const Key& key) {
    std::vector<Key> next;
    for (const World::Event& event : events) {
      next.push_back(after(world, event).key(search_.reduced));
    }
    std::sort(next.begin(), next.end());
    KeyWriter writer;
    for (const Key& one : next) {
      writer.put(one.high);
      writer.put(one.low);
    }
    const Key future = writer.finish();
    const auto known = futures_.emplace(key, future).first;
    return known->second == future ? "" : "two states have one key and two futures";
  }

  // Whatever else happens, an urgent event stays urgent, and it is all the same
  // which of the two comes first. So by induction it is the same for all that
  // can happen before it.
  static std::string check_urgent(const World& world, const World::Events& events,
                                  const World::Events& urgent) {
    for (const World::Event& event : urgent) {
      const World first = after(world, event);
      for (const World::Event& other : events) {
        // A failure may prevent it: then nobody can tell whether it happened.
        const bool fails =
            other.kind == World::Event::Kind::kDies || other.kind == World::Event::Kind::kNotices;
        if (other == event || fails) continue;
        const World second = after(world, other);
        const char* wrong = nullptr;
        if (!second.urgent().contains(event)) {
          wrong = "does not stay so after";
        } else if (!first.events().contains(other)) {
          wrong = "prevents";
        } else if (after(first, other).key(false) != after(second, event).key(false)) {
          wrong = "does not commute with";
        }
        if (wrong != nullptr) {
          return "the urgent '" + event.describe() + "' " + wrong + " '" + other.describe() + "'";
        }
      }
    }
    return "";
  }

  const Search search_;
  Outcome outcome_;
  KeySet seen_;
  std::unordered_map<Key, Key, KeyHash> futures_;
  std::vector<Frame> path_;
};

}  // namespace

Outcome explore(const Job& job, const Search& search) { return Explorer(job, search).take(); }

std::string headline(const std::string& story) { return story.substr(0, story.find('\n')); }

}  // namespace hvd_partial

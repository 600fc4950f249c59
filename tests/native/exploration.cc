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
    std::sort(outcome_.end_keys.begin(), outcome_.end_keys.end());
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
    if (const auto urgent = world.urgent()) {
      if (search_.check_urgent && wrong.empty()) wrong = check_urgent(world, events, *urgent);
      if (search_.reduced) {
        events = {};
        events.add(urgent->kind, urgent->rank);
      }
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
    const auto [known, first] = futures_.emplace(key, writer.finish());
    if (first) {
      KeyWriter again;
      for (const Key& one : next) {
        again.put(one.high);
        again.put(one.low);
      }
      return known->second == again.finish() ? "" : "a key is not reproducible";
    }
    KeyWriter again;
    for (const Key& one : next) {
      again.put(one.high);
      again.put(one.low);
    }
    return known->second == again.finish() ? "" : "two states have one key and two futures";
  }

  std::string check_urgent(const World& world, const World::Events& events,
                           const World::Event& urgent) {
    const World first = after(world, urgent);
    for (const World::Event& other : events) {
      if (other == urgent) continue;
      const World second = after(world, other);
      // ... still possible, still urgent and without influence on the other.
      const auto possible = [](const World& where, const World::Event& event) {
        const World::Events all = where.events();
        return std::find(all.begin(), all.end(), event) != all.end();
      };
      if (!possible(second, urgent)) {
        return "'" + urgent.describe() + "' was urgent, and '" + other.describe() + "' prevents it";
      }
      if (!possible(first, other)) {
        return "'" + urgent.describe() + "' was urgent, and prevents '" + other.describe() + "'";
      }
      if (after(first, other).key(false) != after(second, urgent).key(false)) {
        return "'" + urgent.describe() + "' was urgent, and '" + other.describe() +
               "' is not the same before and after it";
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

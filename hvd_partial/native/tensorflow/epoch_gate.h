// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TENSORFLOW_EPOCH_GATE_H_
#define HVD_PARTIAL_TENSORFLOW_EPOCH_GATE_H_

#include <cstdint>
#include <map>
#include <mutex>

#include "tensorflow/channel_book.h"

namespace hvd_partial {

// Decides when a rank's epoch is over: when the ranks together have
// contributed `steps` batches each. A batch is begun if at least half of what
// the ranks will contribute meanwhile still belongs to the epoch: so a slow
// rank does not keep the others waiting for a last batch of its own, and on
// the whole epochs are neither too long nor too short.
//
// What they will contribute meanwhile is taken to be what it was per batch of
// this rank so far in the epoch. In sync mode that is one batch of each rank,
// exactly, and the epoch has exactly `steps` batches.
//
// `gate` names a dataset. Thread-safe.
class EpochGate {
 public:
  struct Plan {
    std::int64_t steps = 1;   // batches per rank
    std::int64_t passes = 1;  // batches in a contribution
    std::int64_t size = 1;    // ranks
  };
  // Where an epoch began.
  struct Epoch {
    std::int64_t progress = 0;  // contributions of all ranks
    std::int64_t settled = 0;   // contributions of this rank
    std::int64_t end = 0;       // it ends at this progress, in batches

    bool operator==(const Epoch& other) const {
      return progress == other.progress && settled == other.settled && end == other.end;
    }
  };

  static EpochGate& instance();

  // An epoch begins where the last one ended by plan, so that a contribution
  // too many now is one less then; after a flush it begins at the present,
  // which then is the same for all ranks.
  Epoch begin(std::int64_t gate, const Plan& plan, const ChannelTotals& now);

  // For the input pipeline, which may run far ahead of training: whether it
  // is to make another batch after `handed_out` of this epoch. Those that are
  // on their way count as what they will bring.
  bool open(std::int64_t gate, const Plan& plan, const Epoch& epoch, std::int64_t handed_out,
            const ChannelTotals& now);

  // For the training loop, between two batches: whether to begin another one.
  // `published` are all contributions known here, also in results that were
  // not taken out yet. True if no epoch has begun.
  bool due(std::int64_t gate, std::int64_t published, const ChannelTotals& now);

  void clear();

 private:
  struct State {
    Plan plan;
    Epoch epoch;
    bool ended = false;
    std::int64_t flushes = 0;  // seen when it ended
  };

  // Contributions, in batches, that come with one batch of this rank.
  static double per_batch(const Plan& plan, const Epoch& epoch, const ChannelTotals& now);
  // Only the present epoch: the pipeline of the last one may still ask.
  void end(std::int64_t gate, const Epoch& epoch, const ChannelTotals& now);

  std::mutex mutex_;
  std::map<std::int64_t, State> states_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TENSORFLOW_EPOCH_GATE_H_

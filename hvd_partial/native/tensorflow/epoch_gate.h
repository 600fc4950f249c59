// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TENSORFLOW_EPOCH_GATE_H_
#define HVD_PARTIAL_TENSORFLOW_EPOCH_GATE_H_

#include <cstdint>

#include "tensorflow/channel_book.h"

namespace hvd_partial {

// Decides when a rank's epoch is over: when the ranks together have
// contributed `steps` batches each.
//
// It is asked before every batch, and with prefetching many batches before
// that one is trained on. So it adds to what is done what the batches handed
// out already will bring: each of them about as many contributions as this
// rank's batches brought so far (all ranks' in sync mode: then the epoch ends
// after exactly `steps` batches, however far ahead the input pipeline runs).
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
  };

  // An epoch begins where the last one ended by plan, so that a contribution
  // too many now is one less then; after a flush it begins at the present,
  // which then is the same for all ranks. `gate` names the dataset.
  static Epoch begin(std::int64_t gate, const Plan& plan, const ChannelTotals& now);
  // Whether another batch is due after `handed_out` of this epoch.
  static bool open(std::int64_t gate, const Plan& plan, const Epoch& epoch, std::int64_t handed_out,
                   const ChannelTotals& now);
  static void forget_all();
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TENSORFLOW_EPOCH_GATE_H_

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_DIAGNOSIS_H_
#define HVD_PARTIAL_ENGINE_DIAGNOSIS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/channel.h"
#include "engine/flight_recorder.h"
#include "engine/notices.h"
#include "protocol/coordinator.h"
#include "protocol/stall_watch.h"

namespace hvd_partial {

struct DiagnosisOptions {
  double stall_warning_seconds = 0;  // 0 or less: no warnings
  std::string flight_directory;      // empty: flight records are not written
  std::string versions;              // for people: of the packages that run here
  std::shared_ptr<Notices> notices;  // may be empty
};

// Why nothing happens, for whoever asks: lines about stalls, and the flight
// record. Watches; decides nothing.
class Diagnosis {
 public:
  Diagnosis(int rank, int size, const Clock* clock);

  // Before the progress thread runs.
  void configure(DiagnosisOptions options);

  // ---- any thread -----------------------------------------------------------

  FlightRecorder* recorder() { return &recorder_; }
  void say(Notices::Level level, const std::string& what);
  // Writes a flight record and says so. Returns its path; empty if there is
  // none. `stalls`: what the coordinator knows, on rank 0; `progress` says
  // whether the progress thread answered.
  std::string write_record(const std::string& reason, const std::string& progress,
                           const std::vector<std::shared_ptr<Channel>>& channels,
                           const std::vector<Stall>& stalls);
  bool writes_records() const { return !options_.flight_directory.empty(); }

  // ---- the progress thread --------------------------------------------------

  // When look() is to be called at the latest.
  double next_look() const { return next_look_; }
  // Says what is to be said. Appends what the coordinator must know of this
  // rank to `reports`, and what it tells others to `told`.
  void look(double now, const std::vector<std::shared_ptr<Channel>>& channels,
            const Coordinator* coordinator, std::vector<Message>* reports,
            std::vector<Coordinator::Outgoing>* told);
  void on_told(const StallTold& message, Channel* channel);
  // A stall that a line was said about goes on: look() may have news.
  bool stalled() const { return watch_.has_value() && watch_->announced(); }

 private:
  // What was last seen of a channel of this rank.
  struct Seen {
    HeldCause cause = HeldCause::kNone;
    std::uint64_t round = 0;
    double since = 0;
    bool reported = false;
    double own_line = -1;  // the wait that this rank said something about began then
  };

  void look_at_channel(double now, Channel* channel, Seen* seen, std::vector<Message>* reports);

  const int rank_;
  const int size_;
  const Clock* clock_;
  DiagnosisOptions options_;
  FlightRecorder recorder_;
  std::mutex record_mutex_;  // one record at a time
  int records_ = 0;

  // The progress thread's own.
  std::optional<StallWatch> watch_;
  double next_look_ = kNever;
  std::vector<Seen> seen_;  // by the index of the channel
  std::vector<StallWatch::Line> lines_;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_DIAGNOSIS_H_

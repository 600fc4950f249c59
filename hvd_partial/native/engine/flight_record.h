// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_ENGINE_FLIGHT_RECORD_H_
#define HVD_PARTIAL_ENGINE_FLIGHT_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/channel.h"
#include "engine/flight_recorder.h"
#include "protocol/stall.h"

namespace hvd_partial {

// Everything a rank knows about itself at one moment.
struct FlightRecord {
  int rank = 0;
  int size = 0;
  int number = 1;  // of the records of this process
  std::string reason;
  std::string versions;
  std::string progress;  // whether the progress thread answers
  double monotonic = 0;  // the clock of the events, and
  double wall = 0;       // the time of day, at the same moment
  std::uint64_t recorded = 0;
  std::vector<FlightEvent> events;
  std::vector<Stall> stalls;
  std::vector<Channel::Condition> channels;
};

// One JSON object a line, so that a file that was cut off can still be read:
// the header, then the channels, stalls and events, each with its "line".
std::string to_json_lines(const FlightRecord& record);
// Into a new file in `directory`, whole or not at all.
Status write_flight_record(const FlightRecord& record, const std::string& directory,
                           std::string* path);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_ENGINE_FLIGHT_RECORD_H_

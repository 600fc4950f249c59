// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// What fuzzing starts from: one message of each kind, an address, a header, and
// jobs that go as they should. usage: write_seeds FOLDER

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "job.h"
#include "protocol/messages.h"
#include "transport/control_header.h"
#include "transport/ucx_address.h"

namespace {

using namespace hvd_partial;  // NOLINT: this file is one function

std::vector<Message> one_of_each() {
  const Mode quorum{ModeKind::kQuorum, 2, 0};
  const Mode designated{ModeKind::kDesignated, 0, 7};
  return {OpenChannel{"d", "2 tensors\nfloat32", quorum, 0.25},
          Call{0, 0, true, 0.125},
          SetMode{kAllChannels, designated},
          Exclude{0, {0x2}, true},
          Decide{0, 1, designated, {0x2}, false},
          Held{0, 3, HeldCause::kRingFull, 1.5},
          StallTold{0, 3, "rank 1"},
          SetMode{0, Mode{ModeKind::kSolo, 0, 0}},
          Flush{0},
          Leave{0, true},
          Goodbye{},
          Abort{"ValueError: no"},
          ChannelOpened{"c", 0},
          ChannelRejected{"c", "rank 1 has other shapes"},
          Members{0, {0x7}, {0x2}, true},
          Members{0, {0x5}, {}, false, 1},
          Freeze{1},
          Frozen{1, {1}},
          Defer{0, 0},
          Deliver{0, 1, 2, 0, 1},
          Thaw{1},
          Activate{0, 3, quorum, false, 0},
          Activate{0, 0, Mode{ModeKind::kSync, 0, 0}, false},
          Activate{0, 1, quorum, true},
          PeerLost{2, "connection reset"},
          Aborted{1, "ValueError: no"},
          StillTraining{},
          AllGone{}};
}

class Folder {
 public:
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
  }
  void add(const std::vector<std::uint8_t>& bytes) {
    std::ofstream file(path_ / ("seed" + std::to_string(count_++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path path_;
  int count_ = 0;
};

void write_decode_seeds(Folder folder) {
  const auto add = [&folder](std::uint8_t kind, std::vector<std::uint8_t> bytes) {
    bytes.insert(bytes.begin(), kind);
    folder.add(bytes);
  };
  std::vector<std::uint8_t> wire;
  for (const Message& message : one_of_each()) {
    encode(message, &wire);
    add(0, wire);
  }
  UcxAddress address;
  address.rank = 1;
  address.size = 2;
  address.control = {1, 2, 3};
  address.bulk = {4, 5};
  add(1, encode(address));
  ControlHeader header;
  header.token = {1, 2, 3};
  header.from = 1;
  header.size = 2;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&header);
  add(2, std::vector<std::uint8_t>(bytes, bytes + sizeof(header)));
}

void write_job_seeds(Folder folder) {
  for (std::uint8_t variant = 0; variant < 72; ++variant) {
    JobScript script(variant);
    for (int step = 0; step < 2; ++step) {
      for (int rank = 0; rank < 3; ++rank) script.deposit(rank);
      script.pass_time();
      for (int rank = 0; rank < 3; ++rank) script.take(rank);
    }
    for (int rank = 0; rank < 3; ++rank) script.flush(rank);
    for (int rank = 0; rank < 3; ++rank) script.take(rank);
    script.deposit(1).leave(1).goodbye(2);
    folder.add(script.bytes());
  }
  for (const Message& message : one_of_each()) {
    for (const int from : {0, 1}) {
      JobScript script(static_cast<std::uint8_t>(from));
      script.deposit(0).say(from, 1 - from, message).deposit(1).deposit(2).pass_time().take(0);
      folder.add(script.bytes());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  try {
    const std::filesystem::path folder(argv[1]);
    write_decode_seeds(Folder(folder / "decode"));
    write_job_seeds(Folder(folder / "job"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

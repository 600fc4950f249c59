// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// The decoders: any bytes are read as a control message, as the header of one
// and as an address. What is read can be written again, byte for byte.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "protocol/messages.h"
#include "protocol/objections.h"
#include "transport/control_header.h"
#include "transport/ucx_address.h"

namespace {

using hvd_partial::ControlHeader;
using hvd_partial::JobSecret;
using hvd_partial::Message;
using hvd_partial::UcxAddress;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

void read_message(const std::vector<std::uint8_t>& bytes) {
  const auto message = hvd_partial::decode(bytes.data(), bytes.size());
  if (!message) return;
  std::vector<std::uint8_t> again;
  encode(*message, &again);
  require(again == bytes, "a message that was read is written as it was");
  for (const int size : {1, 2, 63, 64, 65, 1000}) {
    (void)objection_of_coordinator(*message, size);
    (void)objection_of_rank(*message, size - 1, size);
  }
}

void read_address(const std::vector<std::uint8_t>& bytes) {
  UcxAddress address;
  if (!decode_address(0, 2, 1, bytes, &address).ok()) return;
  require(encode(address) == bytes, "an address that was read is written as it was");
}

void read_a_header(const std::vector<std::uint8_t>& bytes) {
  const JobSecret secret{{1, 2, 3}, 4};
  ControlHeader header;
  const std::string objection =
      read_header(bytes.data(), bytes.size(), secret, /*rank=*/0, /*size=*/2, &header);
  if (!objection.empty()) return;
  require(bytes.size() == sizeof(header) && header.token == secret.token && header.from == 1,
          "only who knows the secret is let in");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<std::uint8_t> bytes(data + 1, data + size);
  switch (data[0] % 3) {
    case 0:
      read_message(bytes);
      break;
    case 1:
      read_address(bytes);
      break;
    default:
      read_a_header(bytes);
  }
  return 0;
}

// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_BASE_BYTES_H_
#define HVD_PARTIAL_BASE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace hvd_partial {

// Appends values to a byte buffer that is reused between messages. All ranks
// of a job run the same build on the same kind of host: host byte order.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::uint8_t>* buffer) : buffer_(buffer) { buffer_->clear(); }

  template <typename T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T>, "only plain numbers go on the wire");
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    buffer_->insert(buffer_->end(), bytes, bytes + sizeof(T));
  }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    buffer_->insert(buffer_->end(), text.begin(), text.end());
  }

 private:
  std::vector<std::uint8_t>* buffer_;
};

// Reads what ByteWriter wrote. A read past the end yields zero values and
// makes ok() false; nothing outside the given bytes is ever touched.
class ByteReader {
 public:
  ByteReader(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  template <typename T>
  T get() {
    static_assert(std::is_arithmetic_v<T>, "only plain numbers go on the wire");
    T value{};
    if (take(sizeof(T))) std::memcpy(&value, data_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string get_string(std::size_t longest = kNoLimit) {
    const auto size = get<std::uint32_t>();
    if (size > longest) refuse();
    if (!take(size)) return {};
    return std::string(reinterpret_cast<const char*>(data_ - size), size);
  }
  bool get_flag() {
    const auto value = get<std::uint8_t>();
    if (value > 1) refuse();
    return value == 1;
  }

  // What was read makes no sense: as if something had been missing.
  void refuse() {
    ok_ = false;
    left_ = 0;
  }

  // Everything read so far was there.
  bool ok() const { return ok_; }
  // ... and nothing is left over.
  bool finished() const { return ok_ && left_ == 0; }

 private:
  static constexpr std::size_t kNoLimit = ~std::size_t{0};

  bool take(std::size_t size) {
    if (size > left_) {
      refuse();
      return false;
    }
    data_ += size;
    left_ -= size;
    return true;
  }

  const std::uint8_t* data_;
  std::size_t left_;
  bool ok_ = true;
};

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_BASE_BYTES_H_

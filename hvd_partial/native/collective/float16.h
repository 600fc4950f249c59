// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_COLLECTIVE_FLOAT16_H_
#define HVD_PARTIAL_COLLECTIVE_FLOAT16_H_

#include <cstdint>
#include <cstring>

// Conversions between f32 and the two 16-bit formats (IEEE 754 binary16;
// bfloat16 = the upper half of an f32), to nearest even. No branches, so that
// loops over them vectorise; bit for bit what the F16C instructions give. They
// need the default floating-point mode (subnormals not flushed).

#define HVDP_ALWAYS_INLINE inline __attribute__((always_inline))

namespace hvd_partial {

HVDP_ALWAYS_INLINE std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

HVDP_ALWAYS_INLINE float bits_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

HVDP_ALWAYS_INLINE float bfloat16_to_float(std::uint16_t half) {
  return bits_float(std::uint32_t{half} << 16);
}

HVDP_ALWAYS_INLINE std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const std::uint32_t quiet = bits | 0x00400000u;  // a NaN must not round to infinity
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>((nan ? quiet : rounded) >> 16);
}

HVDP_ALWAYS_INLINE float float16_to_float(std::uint16_t half) {
  const std::uint32_t sign = (std::uint32_t{half} & 0x8000u) << 16;
  const std::uint32_t magnitude = (std::uint32_t{half} & 0x7fffu) << 13;
  // With the fields in place the value is too small by the difference of the
  // exponent biases, 127 - 15; the product is exact, for subnormals too.
  const std::uint32_t finite = float_bits(bits_float(magnitude) * 0x1p112f);
  const std::uint32_t special = magnitude | 0x7f800000u;  // infinity, NaN
  return bits_float(sign | (magnitude >= (0x7c00u << 13) ? special : finite));
}

HVDP_ALWAYS_INLINE std::uint16_t float_to_float16(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // 13 bits go; what overflows in the fraction carries into the exponent.
  const std::uint32_t normal =
      (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - ((127u - 15u) << 23)) >> 13;
  // Between 0.5 and 1 an f32 has the spacing of the f16 subnormals, so this
  // addition rounds to one of them and leaves it in the low bits.
  const std::uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  std::uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= (143u << 23) ? 0x7c00u : half;  // 65536 and above
  half = magnitude > 0x7f800000u ? nan : half;
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_COLLECTIVE_FLOAT16_H_

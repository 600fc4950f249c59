// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// The tests of the kernels, included by one test program for each of their
// builds. Expected values come from arithmetic in double.

#ifndef HVD_PARTIAL_TESTS_NATIVE_KERNELS_CASES_H_
#define HVD_PARTIAL_TESTS_NATIVE_KERNELS_CASES_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collective/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hvd_partial {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Around the vector widths, and beyond the block of all_finite.
constexpr std::size_t kLengths[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 1027, 20011};

// A 16-bit format: bits of the fraction, and of the exponent.
struct Half {
  int fraction;
  int exponent;

  int bias() const { return (1 << (exponent - 1)) - 1; }

  double decode(std::uint16_t bits) const {
    const int field = (bits >> fraction) & ((1 << exponent) - 1);
    const int low = bits & ((1 << fraction) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (field == (1 << exponent) - 1) return low == 0 ? sign * kInfinity : std::nan("");
    if (field == 0) return sign * std::ldexp(low, 1 - bias() - fraction);
    return sign * std::ldexp(low + (1 << fraction), field - bias() - fraction);
  }

  // Of a value that is not NaN, to nearest even.
  std::uint16_t encode(double value) const {
    const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
    const unsigned infinity = ((1u << exponent) - 1u) << fraction;
    const double magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
    const int least = 1 - bias() - fraction;  // exponent of the smallest subnormal
    const int unit = magnitude == 0 ? least : std::max(least, std::ilogb(magnitude) - fraction);
    const double rounded = std::nearbyint(std::ldexp(magnitude, -unit));
    // Counting in units of the subnormals and carrying into the exponent is the encoding.
    const double code = rounded + std::ldexp(unit - least, fraction);
    if (code >= infinity) return static_cast<std::uint16_t>(sign | infinity);
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(code));
  }
};

constexpr Half kFloat16Format{10, 5};
constexpr Half kBFloat16Format{7, 8};

bool is_nan(const Half& half, std::uint16_t bits) { return std::isnan(half.decode(bits)); }

// What a kernel must give for an f32 outcome that is then stored in 16 bits.
void expect_half(const Half& half, float outcome, std::uint16_t got, const std::string& what) {
  if (std::isnan(outcome)) {
    EXPECT_TRUE(is_nan(half, got)) << what << ": " << got;
  } else {
    EXPECT_EQ(half.encode(outcome), got) << what << ", outcome " << outcome;
  }
}

struct HalfCase {
  DType dtype;
  Half half;
};
const HalfCase kHalves[] = {{DType::kFloat16, kFloat16Format}, {DType::kBFloat16, kBFloat16Format}};

TEST(Kernels, EveryHalfValueSurvivesTheWayThroughFloat) {
  for (const HalfCase& test : kHalves) {
    std::vector<std::uint16_t> values(65536);
    for (unsigned bits = 0; bits < 65536; ++bits) values[bits] = static_cast<std::uint16_t>(bits);
    const std::vector<std::uint16_t> zeros(65536, 0x8000);  // -0 + x is x for every x
    std::vector<std::uint16_t> sum = zeros;
    add(test.dtype, sum.data(), values.data(), values.size());
    for (unsigned bits = 0; bits < 65536; ++bits) {
      if (is_nan(test.half, values[bits])) {
        ASSERT_TRUE(is_nan(test.half, sum[bits])) << bits;
      } else {
        ASSERT_EQ(values[bits], sum[bits]) << bits;
      }
    }
  }
}

TEST(Kernels, HalvesRoundToNearestEven) {
  for (const HalfCase& test : kHalves) {
    std::mt19937_64 random(1);
    std::vector<std::uint16_t> left, right;
    for (int i = 0; i < 300000; ++i) {
      left.push_back(static_cast<std::uint16_t>(random()));
      right.push_back(static_cast<std::uint16_t>(random()));
    }
    // All pairs of neighbouring sizes, where sums fall on ties.
    for (unsigned a = 0; a < 512; ++a) {
      for (unsigned b = 0; b < 512; ++b) {
        left.push_back(static_cast<std::uint16_t>(a * 64 + 1));
        right.push_back(static_cast<std::uint16_t>(b * 65));
      }
    }
    std::vector<std::uint16_t> sum = left, scaled(left.size()), sum_scaled = left,
                               divided(left.size());
    const float scale = 1.0f / 3.0f;
    add(test.dtype, sum.data(), right.data(), right.size());
    copy_scaled(test.dtype, scaled.data(), right.data(), right.size(), scale);
    add_scaled(test.dtype, sum_scaled.data(), right.data(), right.size(), scale);
    copy_divided(test.dtype, divided.data(), right.data(), right.size(), 3.0);
    for (std::size_t i = 0; i < left.size(); ++i) {
      const auto a = static_cast<float>(test.half.decode(left[i]));
      const auto b = static_cast<float>(test.half.decode(right[i]));
      const float product = b * scale;
      const std::string what = std::to_string(left[i]) + " and " + std::to_string(right[i]);
      expect_half(test.half, a + b, sum[i], "sum of " + what);
      expect_half(test.half, product, scaled[i], "scaled " + what);
      expect_half(test.half, a + product, sum_scaled[i], "scaled sum of " + what);
      expect_half(test.half, b / 3.0f, divided[i], "divided " + what);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Kernels, FloatsOutsideTheRangeOfHalvesOverflowOrVanishCorrectly) {
  // Products of two f16 values cover the neighbourhood of every boundary:
  // 65504 | 65520 | 65536, 2^-14, 2^-24, 2^-25 and below.
  for (const HalfCase& test : kHalves) {
    std::vector<std::uint16_t> values;
    for (unsigned bits = 0; bits < 65536; ++bits)
      values.push_back(static_cast<std::uint16_t>(bits));
    for (const float scale : {1.0002f, 1.00024f, 1.00025f, 0.5f, 0.25f, 0.75f, 3.0f, 1e-3f, 1e30f,
                              1e-30f, 0x1p-24f, 0x1.8p-10f, -1.0f}) {
      std::vector<std::uint16_t> scaled(values.size());
      copy_scaled(test.dtype, scaled.data(), values.data(), values.size(), scale);
      for (unsigned bits = 0; bits < 65536; ++bits) {
        const float product = static_cast<float>(test.half.decode(values[bits])) * scale;
        expect_half(test.half, product, scaled[bits],
                    std::to_string(bits) + " times " + std::to_string(scale));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

template <class Number>
void check_native(DType dtype) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> values(-1000.0, 1000.0);
  for (const std::size_t length : kLengths) {
    // One element too many, which must stay as it is; not aligned to a vector.
    std::vector<Number> left(length + 2), right(length + 2);
    for (Number& value : left) value = static_cast<Number>(values(random));
    for (Number& value : right) value = static_cast<Number>(values(random));
    const bool real = is_floating(dtype);
    const Number scale = real ? static_cast<Number>(0.3) : Number{1};
    const Number divisor = real ? Number{7} : Number{1};

    std::vector<Number> sum = left, scaled = left, sum_scaled = left, divided = left;
    add(dtype, sum.data() + 1, right.data() + 1, length);
    copy_scaled(dtype, scaled.data() + 1, right.data() + 1, length, static_cast<double>(scale));
    add_scaled(dtype, sum_scaled.data() + 1, right.data() + 1, length, static_cast<double>(scale));
    copy_divided(dtype, divided.data() + 1, right.data() + 1, length, static_cast<double>(divisor));
    for (std::size_t i = 0; i < length + 2; ++i) {
      const bool inside = i >= 1 && i <= length;
      const Number product = right[i] * scale;
      ASSERT_EQ(inside ? left[i] + right[i] : left[i], sum[i]) << length << ", element " << i;
      ASSERT_EQ(inside ? product : left[i], scaled[i]) << length << ", element " << i;
      ASSERT_EQ(inside ? left[i] + product : left[i], sum_scaled[i]) << length << ", " << i;
      ASSERT_EQ(inside ? right[i] / divisor : left[i], divided[i]) << length << ", element " << i;
    }
  }
}

TEST(Kernels, Float32) { check_native<float>(DType::kFloat32); }
TEST(Kernels, Float64) { check_native<double>(DType::kFloat64); }
TEST(Kernels, Int32) { check_native<std::int32_t>(DType::kInt32); }
TEST(Kernels, Int64) { check_native<std::int64_t>(DType::kInt64); }

TEST(Kernels, HalvesOfEveryLength) {
  for (const HalfCase& test : kHalves) {
    for (const std::size_t length : kLengths) {
      std::vector<std::uint16_t> left(length + 2, test.half.encode(1.0));
      const std::vector<std::uint16_t> right(length + 2, test.half.encode(2.0));
      add(test.dtype, left.data() + 1, right.data() + 1, length);
      for (std::size_t i = 0; i < length + 2; ++i) {
        const double expected = i >= 1 && i <= length ? 3.0 : 1.0;
        ASSERT_EQ(expected, test.half.decode(left[i])) << length << ", element " << i;
      }
    }
  }
}

TEST(Kernels, IntegersWrap) {
  std::int32_t small[] = {std::numeric_limits<std::int32_t>::max()};
  const std::int32_t one[] = {1};
  add(DType::kInt32, small, one, 1);
  EXPECT_EQ(std::numeric_limits<std::int32_t>::min(), small[0]);
  std::int64_t large[] = {std::numeric_limits<std::int64_t>::min()};
  const std::int64_t minus_one[] = {-1};
  add(DType::kInt64, large, minus_one, 1);
  EXPECT_EQ(std::numeric_limits<std::int64_t>::max(), large[0]);
}

TEST(Kernels, CopiesWithFactorOneKeepEveryBit) {
  // A signalling NaN would be changed by any arithmetic.
  const std::uint32_t source[] = {0x7f800001u, 0xff800001u, 0x00000001u, 0x80000000u};
  for (const bool divide : {false, true}) {
    std::uint32_t copied[4] = {};
    if (divide) {
      copy_divided(DType::kFloat32, copied, source, 4, 1.0);
    } else {
      copy_scaled(DType::kFloat32, copied, source, 4, 1.0);
    }
    EXPECT_EQ(0, std::memcmp(copied, source, sizeof source));
  }
}

// Ranks add the same numbers in different orders of the operands.
template <class Number, class Bits>
void check_nan_sums(DType dtype, const std::vector<Bits>& nans) {
  static_assert(sizeof(Number) == sizeof(Bits));
  for (const Bits left : nans) {
    for (const Bits right : nans) {
      for (const std::size_t length : {1, 40}) {
        std::vector<Bits> one(length, left), other(length, right);
        const std::vector<Bits> one_before = one;
        add(dtype, one.data(), other.data(), length);
        add(dtype, other.data(), one_before.data(), length);
        EXPECT_EQ(one, other) << "NaNs " << left << " and " << right;
      }
    }
  }
}

TEST(Kernels, SumsOfNansDoNotDependOnTheOrder) {
  check_nan_sums<float, std::uint32_t>(DType::kFloat32, {0x7fc00000u, 0xffc00000u, 0x7fc12345u});
  check_nan_sums<double, std::uint64_t>(
      DType::kFloat64, {0x7ff8000000000000u, 0xfff8000000000000u, 0x7ff8000000000007u});
  check_nan_sums<std::uint16_t, std::uint16_t>(DType::kFloat16, {0x7e00, 0xfe00, 0x7e01});
  check_nan_sums<std::uint16_t, std::uint16_t>(DType::kBFloat16, {0x7fc0, 0xffc0, 0x7fc1});
}

#if defined(__x86_64__)
TEST(Kernels, SubnormalsSurviveOnAThreadThatFlushesThem) {
  const float source[9] = {1e-40f, 1e-40f, 1e-40f, 1e-40f, 1e-40f, 1e-40f, 1e-40f, 1e-40f, 3e-38f};
  const std::uint16_t half_source[9] = {1, 2, 3, 4, 5, 6, 7, 8, 0x8001};
  float divided[9] = {};
  float sum[9] = {};
  std::uint16_t half_sum[9] = {};
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040;
  _mm_setcsr(flushing);
  copy_divided(DType::kFloat32, divided, source, 9, 4.0);
  add(DType::kFloat32, sum, source, 9);
  add(DType::kFloat16, half_sum, half_source, 9);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(flushing & ~0x3fu, after & ~0x3fu) << "the thread's own mode must come back";
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(source[i] / 4.0f, divided[i]) << i;
    EXPECT_EQ(source[i], sum[i]) << i;
    EXPECT_EQ(half_source[i], half_sum[i]) << i;
  }
}
#endif

template <class Bits>
void check_finite(DType dtype, const std::vector<Bits>& finite, const std::vector<Bits>& others) {
  for (const std::size_t length : kLengths) {
    std::vector<Bits> values(length);
    for (std::size_t i = 0; i < length; ++i) values[i] = finite[i % finite.size()];
    EXPECT_TRUE(all_finite(dtype, values.data(), length)) << length;
    if (length == 0) continue;
    for (const Bits other : others) {
      for (const std::size_t place : {std::size_t{0}, length / 2, length - 1}) {
        const Bits before = values[place];
        values[place] = other;
        EXPECT_FALSE(all_finite(dtype, values.data(), length)) << length << " at " << place;
        // Beyond the end it does not count.
        if (place == length - 1) {
          EXPECT_TRUE(all_finite(dtype, values.data(), length - 1));
        }
        values[place] = before;
      }
    }
  }
}

TEST(Kernels, AllFinite) {
  check_finite<std::uint32_t>(DType::kFloat32, {0u, 0x80000000u, 0x7f7fffffu, 0xff7fffffu, 1u},
                              {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffffffffu, 0x7f800001u});
  check_finite<std::uint64_t>(
      DType::kFloat64, {0u, 0x8000000000000000u, 0x7fefffffffffffffu, 0xffefffffffffffffu},
      {0x7ff0000000000000u, 0xfff0000000000000u, 0x7ff0000000000001u, 0xffffffffffffffffu});
  check_finite<std::uint16_t>(DType::kFloat16, {0, 0x8000, 0x7bff, 0xfbff, 1},
                              {0x7c00, 0xfc00, 0x7e00, 0xffff, 0x7c01});
  check_finite<std::uint16_t>(DType::kBFloat16, {0, 0x8000, 0x7f7f, 0xff7f, 1},
                              {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81});
  const std::uint32_t all_ones[] = {0xffffffffu, 0x7f800000u};
  EXPECT_TRUE(all_finite(DType::kInt32, all_ones, 2));
  EXPECT_TRUE(all_finite(DType::kInt64, all_ones, 1));
}

TEST(Kernels, AddRangeTouchesItsBytesOnly) {
  const TensorLayout layout({{DType::kInt32, 20}, {DType::kFloat32, 40}, {DType::kFloat64, 9}});
  // f32: 40 * 4 = 160 -> 192 bytes; f64: 72 -> 128; i32: 80 -> 128.
  ASSERT_EQ(448u, layout.bytes());
  for (std::size_t begin = 0; begin <= layout.bytes(); begin += TensorLayout::kAlignment) {
    for (std::size_t end = begin; end <= layout.bytes(); end += TensorLayout::kAlignment) {
      std::vector<std::uint8_t> buffer(layout.bytes(), 0);
      std::vector<std::uint8_t> source(layout.bytes(), 0);
      const auto put = [&](std::size_t tensor, std::size_t i, double value) {
        const TensorSpec& spec = layout.tensors()[tensor];
        std::uint8_t* at = source.data() + layout.offset(tensor) + i * dtype_size(spec.dtype);
        const auto single = static_cast<float>(value);
        const auto integer = static_cast<std::int32_t>(value);
        if (spec.dtype == DType::kFloat32) std::memcpy(at, &single, sizeof single);
        if (spec.dtype == DType::kFloat64) std::memcpy(at, &value, sizeof value);
        if (spec.dtype == DType::kInt32) std::memcpy(at, &integer, sizeof integer);
      };
      for (std::size_t tensor = 0; tensor < 3; ++tensor) {
        for (std::size_t i = 0; i < layout.tensors()[tensor].elements; ++i) {
          put(tensor, i, static_cast<double>(i + 1));
        }
      }
      add_range(layout, buffer.data(), begin, end, source.data() + begin);
      for (std::size_t i = 0; i < layout.bytes(); ++i) {
        const bool inside = i >= begin && i < end;
        ASSERT_EQ(inside ? source[i] : 0, buffer[i]) << begin << ".." << end << ", byte " << i;
      }
    }
  }
}

TEST(TensorLayout, GroupsByDtypeAndAligns) {
  const TensorLayout layout({{DType::kFloat16, 3},
                             {DType::kFloat32, 17},
                             {DType::kFloat16, 0},
                             {DType::kFloat16, 33},
                             {DType::kFloat32, 1}});
  ASSERT_EQ(2u, layout.segments().size());
  EXPECT_EQ(DType::kFloat32, layout.segments()[0].dtype);
  EXPECT_EQ(0u, layout.segments()[0].begin);
  EXPECT_EQ(192u, layout.segments()[0].end);
  EXPECT_EQ(192u, layout.segments()[1].begin);
  EXPECT_EQ(layout.bytes(), layout.segments()[1].end);
  EXPECT_EQ(192u + 64u + 128u, layout.bytes());
  EXPECT_EQ(0u, layout.offset(1));
  EXPECT_EQ(128u, layout.offset(4));
  EXPECT_EQ(192u, layout.offset(0));
  EXPECT_EQ(256u, layout.offset(3));
}

TEST(TensorLayout, OfNothingIsEmpty) {
  EXPECT_EQ(0u, TensorLayout().bytes());
  EXPECT_EQ(0u, TensorLayout(std::vector<TensorSpec>()).bytes());
  const TensorLayout layout({{DType::kFloat32, 0}});
  EXPECT_EQ(0u, layout.bytes());
  EXPECT_TRUE(layout.segments().empty());
}

}  // namespace
}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TESTS_NATIVE_KERNELS_CASES_H_

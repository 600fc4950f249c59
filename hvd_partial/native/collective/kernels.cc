// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

// Loops are plain and left to the compiler's vectoriser, once for the baseline
// processor and once for AVX2, chosen at run time by an ordinary branch (no
// ifunc: those break sanitizers). Only f16 on F16C is written with intrinsics.
// Both choices give the same bits. HVDP_BASELINE_KERNELS leaves the second out.

#include "collective/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "collective/float16.h"

#if defined(__x86_64__) && !defined(HVDP_BASELINE_KERNELS)
#include <immintrin.h>
#define HVDP_X86 1
#define HVDP_AVX2 __attribute__((target("avx2,f16c")))
#else
#include <cfenv>
#define HVDP_X86 0
#endif

namespace hvd_partial {

namespace {

// TensorFlow flushes subnormals to zero on its own threads. Here the same
// inputs must give the same bits on whatever thread: replicas would drift.
class DefaultFloatMode {
 public:
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
#if HVDP_X86
  DefaultFloatMode() : saved_(_mm_getcsr()) {
    if ((saved_ & ~kExceptionFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if ((saved_ & ~kExceptionFlags) != kDefault) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kExceptionFlags = 0x3f;
  static constexpr unsigned kDefault = 0x1f80;  // all masked, to nearest, no flushing
  unsigned saved_;
#else
  DefaultFloatMode() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

// ---- number formats: how an element is stored, and what it is computed in

template <class Number>
struct Native {
  using Storage = Number;
  using Value = Number;
  static HVDP_ALWAYS_INLINE Value load(Storage stored) { return stored; }
  static HVDP_ALWAYS_INLINE Storage store(Value value) { return value; }
};

struct Float16 {
  using Storage = std::uint16_t;
  using Value = float;
  static HVDP_ALWAYS_INLINE Value load(Storage stored) { return float16_to_float(stored); }
  static HVDP_ALWAYS_INLINE Storage store(Value value) { return float_to_float16(value); }
};

struct BFloat16 {
  using Storage = std::uint16_t;
  using Value = float;
  static HVDP_ALWAYS_INLINE Value load(Storage stored) { return bfloat16_to_float(stored); }
  static HVDP_ALWAYS_INLINE Storage store(Value value) { return float_to_bfloat16(value); }
};

// Unsigned, so that they wrap.
using Int32 = Native<std::uint32_t>;
using Int64 = Native<std::uint64_t>;

// ---- operations: the new value of an element from the old one and the source

// The sum of two different NaNs is one of them, depending on the order of the
// operands; one canonical NaN instead keeps the ranks bitwise equal.
template <class Value>
struct Sum {
  HVDP_ALWAYS_INLINE Value operator()(Value old, Value source) const {
    const Value sum = old + source;
    if constexpr (std::numeric_limits<Value>::has_quiet_NaN) {
      return sum == sum ? sum : std::numeric_limits<Value>::quiet_NaN();
    }
    return sum;
  }
#if HVDP_X86
  HVDP_AVX2 HVDP_ALWAYS_INLINE __m256 operator()(__m256 old, __m256 source) const {
    const __m256 sum = _mm256_add_ps(old, source);
    const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
    return _mm256_blendv_ps(sum, nan, _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
  }
#endif
};

template <class Value>
struct Scaled {
  Value scale;
  HVDP_ALWAYS_INLINE Value operator()(Value /*old*/, Value source) const { return source * scale; }
#if HVDP_X86
  HVDP_AVX2 HVDP_ALWAYS_INLINE __m256 operator()(__m256 /*old*/, __m256 source) const {
    return _mm256_mul_ps(source, _mm256_set1_ps(scale));
  }
#endif
};

template <class Value>
struct SumScaled {
  Value scale;
  HVDP_ALWAYS_INLINE Value operator()(Value old, Value source) const {
    return old + source * scale;
  }
#if HVDP_X86
  HVDP_AVX2 HVDP_ALWAYS_INLINE __m256 operator()(__m256 old, __m256 source) const {
    return _mm256_add_ps(old, _mm256_mul_ps(source, _mm256_set1_ps(scale)));
  }
#endif
};

template <class Value>
struct Divided {
  Value divisor;
  HVDP_ALWAYS_INLINE Value operator()(Value /*old*/, Value source) const {
    return source / divisor;
  }
#if HVDP_X86
  HVDP_AVX2 HVDP_ALWAYS_INLINE __m256 operator()(__m256 /*old*/, __m256 source) const {
    return _mm256_div_ps(source, _mm256_set1_ps(divisor));
  }
#endif
};

// ---- loops

template <class Format, class Operation>
HVDP_ALWAYS_INLINE void element_loop(typename Format::Storage* __restrict destination,
                                     const typename Format::Storage* __restrict source,
                                     std::size_t elements, Operation operation) {
  for (std::size_t i = 0; i < elements; ++i) {
    destination[i] =
        Format::store(operation(Format::load(destination[i]), Format::load(source[i])));
  }
}

// An exponent of all ones: adding its lowest bit carries into the sign's place.
template <class Bits, Bits kExponentUnit>
HVDP_ALWAYS_INLINE bool finite_loop(const Bits* source, std::size_t elements) {
  constexpr std::size_t kBlock = 16384 / sizeof(Bits);
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t end = std::min(elements, begin + kBlock);
    Bits seen = 0;
    for (std::size_t i = begin; i < end; ++i) {
      seen = static_cast<Bits>(seen | ((source[i] & ~kSign) + kExponentUnit));
    }
    if ((seen & kSign) != 0) return false;
  }
  return true;
}

// Not inlined: nothing may move across the change of the floating-point mode.
template <class Format, class Operation>
__attribute__((noinline)) void run_baseline(typename Format::Storage* destination,
                                            const typename Format::Storage* source,
                                            std::size_t elements, Operation operation) {
  element_loop<Format>(destination, source, elements, operation);
}

template <class Bits, Bits kExponentUnit>
bool finite_baseline(const Bits* source, std::size_t elements) {
  return finite_loop<Bits, kExponentUnit>(source, elements);
}

#if HVDP_X86

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }

template <class Format, class Operation>
HVDP_AVX2 __attribute__((noinline)) void run_avx2(typename Format::Storage* destination,
                                                  const typename Format::Storage* source,
                                                  std::size_t elements, Operation operation) {
  element_loop<Format>(destination, source, elements, operation);
}

template <class Operation>
HVDP_AVX2 HVDP_ALWAYS_INLINE void eight_float16(std::uint16_t* destination,
                                                const std::uint16_t* source, Operation operation) {
  auto* to = reinterpret_cast<__m128i*>(destination);
  const __m256 old = _mm256_cvtph_ps(_mm_loadu_si128(to));
  const __m256 from = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  _mm_storeu_si128(to, _mm256_cvtps_ph(operation(old, from), _MM_FROUND_TO_NEAREST_INT));
}

template <class Operation>
HVDP_AVX2 __attribute__((noinline)) void run_f16c(std::uint16_t* destination,
                                                  const std::uint16_t* source, std::size_t elements,
                                                  Operation operation) {
  std::size_t i = 0;
  for (; i + 8 <= elements; i += 8) eight_float16(destination + i, source + i, operation);
  if (i == elements) return;
  const std::size_t rest_bytes = (elements - i) * sizeof(std::uint16_t);
  std::uint16_t to[8] = {};
  std::uint16_t from[8] = {};
  std::memcpy(to, destination + i, rest_bytes);
  std::memcpy(from, source + i, rest_bytes);
  eight_float16(to, from, operation);
  std::memcpy(destination + i, to, rest_bytes);
}

template <class Bits, Bits kExponentUnit>
HVDP_AVX2 bool finite_avx2(const Bits* source, std::size_t elements) {
  return finite_loop<Bits, kExponentUnit>(source, elements);
}

#endif  // HVDP_X86

template <class Format, class Operation>
void run(void* destination, const void* source, std::size_t elements, Operation operation) {
  auto* to = static_cast<typename Format::Storage*>(destination);
  const auto* from = static_cast<const typename Format::Storage*>(source);
  const DefaultFloatMode mode;
#if HVDP_X86
  if (has_avx2()) {
    if constexpr (std::is_same_v<Format, Float16>) {
      run_f16c(to, from, elements, operation);
    } else {
      run_avx2<Format>(to, from, elements, operation);
    }
    return;
  }
#endif
  run_baseline<Format>(to, from, elements, operation);
}

template <class Bits, Bits kExponentUnit>
bool finite(const void* source, std::size_t elements) {
  const auto* from = static_cast<const Bits*>(source);
#if HVDP_X86
  if (has_avx2()) return finite_avx2<Bits, kExponentUnit>(from, elements);
#endif
  return finite_baseline<Bits, kExponentUnit>(from, elements);
}

template <template <class> class Operation>
void run_floating(DType dtype, void* destination, const void* source, std::size_t elements,
                  double factor) {
  const Operation<float> single{static_cast<float>(factor)};
  switch (dtype) {
    case DType::kFloat32:
      return run<Native<float>>(destination, source, elements, single);
    case DType::kFloat64:
      return run<Native<double>>(destination, source, elements, Operation<double>{factor});
    case DType::kFloat16:
      return run<Float16>(destination, source, elements, single);
    case DType::kBFloat16:
      return run<BFloat16>(destination, source, elements, single);
    case DType::kInt32:
    case DType::kInt64:
      return;
  }
}

void copy(DType dtype, void* destination, const void* source, std::size_t elements) {
  if (elements != 0) std::memcpy(destination, source, elements * dtype_size(dtype));
}

}  // namespace

void add(DType dtype, void* destination, const void* source, std::size_t elements) {
  switch (dtype) {
    case DType::kFloat32:
      return run<Native<float>>(destination, source, elements, Sum<float>{});
    case DType::kFloat64:
      return run<Native<double>>(destination, source, elements, Sum<double>{});
    case DType::kFloat16:
      return run<Float16>(destination, source, elements, Sum<float>{});
    case DType::kBFloat16:
      return run<BFloat16>(destination, source, elements, Sum<float>{});
    case DType::kInt32:
      return run<Int32>(destination, source, elements, Sum<std::uint32_t>{});
    case DType::kInt64:
      return run<Int64>(destination, source, elements, Sum<std::uint64_t>{});
  }
}

void copy_scaled(DType dtype, void* destination, const void* source, std::size_t elements,
                 double scale) {
  if (scale == 1.0 || !is_floating(dtype)) return copy(dtype, destination, source, elements);
  run_floating<Scaled>(dtype, destination, source, elements, scale);
}

void add_scaled(DType dtype, void* destination, const void* source, std::size_t elements,
                double scale) {
  if (scale == 1.0 || !is_floating(dtype)) return add(dtype, destination, source, elements);
  run_floating<SumScaled>(dtype, destination, source, elements, scale);
}

void copy_divided(DType dtype, void* destination, const void* source, std::size_t elements,
                  double divisor) {
  if (divisor == 1.0 || !is_floating(dtype)) return copy(dtype, destination, source, elements);
  run_floating<Divided>(dtype, destination, source, elements, divisor);
}

bool all_finite(DType dtype, const void* source, std::size_t elements) {
  switch (dtype) {
    case DType::kFloat32:
      return finite<std::uint32_t, 0x00800000u>(source, elements);
    case DType::kFloat64:
      return finite<std::uint64_t, 0x0010000000000000u>(source, elements);
    case DType::kFloat16:
      return finite<std::uint16_t, 0x0400u>(source, elements);
    case DType::kBFloat16:
      return finite<std::uint16_t, 0x0080u>(source, elements);
    case DType::kInt32:
    case DType::kInt64:
      return true;
  }
  return true;
}

void add_range(const TensorLayout& layout, void* buffer, std::size_t begin, std::size_t end,
               const void* source) {
  auto* to = static_cast<std::uint8_t*>(buffer);
  const auto* from = static_cast<const std::uint8_t*>(source);
  for (const TensorLayout::Segment& segment : layout.segments()) {
    const std::size_t first = std::max(begin, segment.begin);
    const std::size_t last = std::min(end, segment.end);
    if (first >= last) continue;
    add(segment.dtype, to + first, from + (first - begin),
        (last - first) / dtype_size(segment.dtype));
  }
}

}  // namespace hvd_partial

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace plumb {

/// Element types of safetensors files, known by name and size.
enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, f8_e4m3, f8_e5m2, f8_e8m0 };

/// Bytes of one element.
std::int64_t dtype_bytes(DType dtype);
/// The safetensors spelling, for example "BF16".
std::string_view dtype_name(DType dtype);
/// The dtype of a safetensors spelling; none when unknown.
std::optional<DType> dtype_from_name(std::string_view name);

/// The f32 whose upper 16 bits are `bits`: bf16 widens exactly.
inline float bf16_to_f32(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

/// The nearest bf16, ties to even; NaN stays NaN.
inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace plumb

#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace plumb {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array kDTypes{
    Row{DType::f64, "F64", 8},         Row{DType::f32, "F32", 4},         Row{DType::f16, "F16", 2},
    Row{DType::bf16, "BF16", 2},       Row{DType::i64, "I64", 8},         Row{DType::i32, "I32", 4},
    Row{DType::i16, "I16", 2},         Row{DType::i8, "I8", 1},           Row{DType::u64, "U64", 8},
    Row{DType::u32, "U32", 4},         Row{DType::u16, "U16", 2},         Row{DType::u8, "U8", 1},
    Row{DType::boolean, "BOOL", 1},    Row{DType::f8_e4m3, "F8_E4M3", 1}, Row{DType::f8_e5m2, "F8_E5M2", 1},
    Row{DType::f8_e8m0, "F8_E8M0", 1},
};

const Row& row_of(DType dtype) {
  for (const Row& row : kDTypes)
    if (row.dtype == dtype) return row;
  CHECK(false);
  return kDTypes[0];
}

}  // namespace

std::int64_t dtype_bytes(DType dtype) { return row_of(dtype).bytes; }

std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

}  // namespace plumb

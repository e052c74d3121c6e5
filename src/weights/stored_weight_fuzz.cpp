#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "weights/stored_weight.h"

namespace plumb {
namespace {

/// Takes numbers off the front of the input, which begins anew when it is used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t next() { return size_ == 0 ? std::uint8_t{0} : data_[at_++ % size_]; }
  std::int64_t below(std::int64_t bound) { return next() % bound; }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

constexpr DType kDTypes[] = {DType::f8_e4m3, DType::i8,  DType::u8,  DType::bf16,   DType::f32,
                             DType::f8_e8m0, DType::f16, DType::i64, DType::f8_e5m2};
constexpr const char* kNames[] = {"weight",       "scale",          "weight_scale_inv",
                                  "weight_scale", "weight_scale_2", "input_scale"};

/// A file with some of the tensors that a weight [rows, columns] may have, of right and wrong dtypes, shapes and
/// values.
std::string file_of(Bytes& input, const std::string& base, std::int64_t rows, std::int64_t columns) {
  SafetensorsWriter writer;
  for (const char* name : kNames) {
    if (input.below(3) == 0 && name != kNames[0]) continue;
    const DType dtype = kDTypes[input.below(std::ssize(kDTypes))];
    const std::int64_t divisors[] = {1, 2, 16, 32, 40, 128};
    std::vector<std::int64_t> shape{rows, (columns + divisors[input.below(6)] - 1)};
    shape[1] = std::max<std::int64_t>(1, shape[1] / divisors[input.below(6)]);
    if (input.below(8) == 0) shape[0] = 1 + input.below(4);
    if (input.below(8) == 0) shape.clear();
    std::int64_t count = dtype_bytes(dtype);
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    for (std::byte& byte : bytes) byte = std::byte{input.next()};
    writer.add_bytes(base + "." + name, dtype, shape, bytes);
  }
  return writer.bytes();
}

}  // namespace
}  // namespace plumb

// Whatever tensors a file has for a weight: a message that names the file, or as many finite values as the weight has.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumb;
  Bytes input(data, size);
  const std::string base = "layers.0.ffn.experts.0.w1";
  const std::int64_t rows = 1 + input.below(5), columns = 1 + input.below(70);
  ModelConfig config;
  config.fp8_block = {1 + input.below(4), 1 + input.below(64)};
  const Slot slot{base + ".weight", Slot::Layout::transposed, {rows, columns}, 1, nullptr, nullptr};
  const std::string bytes = file_of(input, base, rows, columns);
  auto file = SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "fuzz");
  CHECK(file.has_value());
  TensorStore store = TensorStore::of(std::move(*file));
  const auto stored = locate_weight(slot, Naming::release, config, store);
  if (!stored) {
    CHECK(stored.error().message.starts_with("fuzz: "));
    return 0;
  }
  std::vector<float> values;
  const auto read = read_weight(slot, *stored, config, values);
  if (!read) {
    CHECK(read.error().message.starts_with("fuzz: "));
    return 0;
  }
  CHECK(std::ssize(values) == rows * columns);
  CHECK(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }));
  return 0;
}

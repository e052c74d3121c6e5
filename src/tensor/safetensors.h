#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace plumb {

/// One tensor of an open file: row-major, little-endian, possibly unaligned.
struct StoredTensor {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;

  std::int64_t count() const { return static_cast<std::int64_t>(bytes.size()) / dtype_bytes(dtype); }
};

/// A shape as messages print it, for example "[4, 1024]".
std::string shape_text(std::span<const std::int64_t> shape);

/// A safetensors file, mapped read-only: 8 bytes of header length, a JSON header, then the tensors' bytes without
/// overlap or hole. Errors: a missing or truncated file; a header that is too long, not JSON or not an object; a key
/// twice; an unknown dtype; dimensions that are negative, not integers or overflow; offsets that do not fit shape,
/// dtype, each other or the file. The file must not shrink while it is open.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  /// Same, from bytes that outlive the result; `file_name` starts every message.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& file_name);

  /// In the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null when the file has no such tensor.
  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& file_name() const { return file_name_; }

  /// All elements of a tensor of exactly that dtype. Errors: no such tensor, another dtype.
  Result<std::vector<float>> read_f32(std::string_view name) const;
  Result<std::vector<double>> read_f64(std::string_view name) const;
  Result<std::vector<std::int32_t>> read_i32(std::string_view name) const;
  Result<std::vector<std::int64_t>> read_i64(std::string_view name) const;
  Result<std::vector<std::uint16_t>> read_u16(std::string_view name) const;
  Result<std::vector<std::uint8_t>> read_u8(std::string_view name) const;

 private:
  template <class T>
  Result<std::vector<T>> read(std::string_view name, DType dtype) const;

  std::string file_name_;
  std::shared_ptr<const void> mapping_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// Collects tensors, in order, and writes them as one safetensors file. Names are given once and sizes fit shapes:
/// anything else is a broken invariant.
class SafetensorsWriter {
 public:
  void add_f32(std::string name, std::vector<std::int64_t> shape, std::span<const float> values);
  void add_f64(std::string name, std::vector<std::int64_t> shape, std::span<const double> values);
  void add_i32(std::string name, std::vector<std::int64_t> shape, std::span<const std::int32_t> values);
  void add_i64(std::string name, std::vector<std::int64_t> shape, std::span<const std::int64_t> values);
  /// Any dtype, from its stored bytes.
  void add_bytes(std::string name, DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> bytes);
  void set_metadata(std::string key, std::string value);

  /// The file's bytes.
  std::string bytes() const;
  /// Writes the file as write_file_durably does: a reader sees the old file or the whole new one. Errors: its.
  Result<void> write(const std::filesystem::path& path) const;

 private:
  struct Pending {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::string header() const;

  std::vector<Pending> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace plumb

#include "tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/durable_file.h"
#include "tensor/strict_json.h"

namespace plumb {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors bytes are used as they are");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxRank = 16;
constexpr std::string_view kMetadataKey = "__metadata__";

std::string system_reason(int code) { return std::generic_category().message(code); }

/// A dimension, an offset: a non-negative integer below 2^63, or a message's tail.
Result<std::int64_t> count_from(const json& value) {
  if (!value.is_number_integer()) return error("{} is not an integer", shown(value));
  if (!value.is_number_unsigned()) return error("{} is negative", shown(value));
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(INT64_MAX)) return error("{} is too large", shown(value));
  return static_cast<std::int64_t>(number);
}

/// Product of the shape and the element size; none when it leaves 63 bits.
std::optional<std::int64_t> bytes_of(std::span<const std::int64_t> shape, DType dtype) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t bytes = dtype_bytes(dtype);
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return bytes;
}

Result<std::vector<std::int64_t>> shape_from(const json& value) {
  if (!value.is_array()) return error("shape is not an array");
  if (value.size() > kMaxRank) return error("shape has {} dimensions, more than {}", value.size(), kMaxRank);
  std::vector<std::int64_t> shape;
  for (const json& item : value) {
    const auto extent = count_from(item);
    if (!extent) return error("dimension {}", extent.error().message);
    shape.push_back(*extent);
  }
  return shape;
}

struct Placed {
  StoredTensor tensor;
  std::int64_t begin;
  std::int64_t end;
};

/// One entry of the header; the message names what is wrong with it, without file and tensor.
Result<Placed> placed_from(const std::string& name, const json& entry) {
  if (!entry.is_object()) return error("its header entry is not an object");
  for (const auto& [key, value] : entry.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets") return error("unknown header key '{}'", key);
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key)) return error("its header entry has no '{}'", key);
  const json& dtype_text = entry["dtype"];
  if (!dtype_text.is_string()) return error("dtype {} is not a string", shown(dtype_text));
  const auto dtype = dtype_from_name(dtype_text.get_ref<const std::string&>());
  if (!dtype) return error("unknown dtype {}", shown(dtype_text));
  auto shape = shape_from(entry["shape"]);
  if (!shape) return tl::unexpected(shape.error());
  const json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return error("data_offsets is not [begin, end]");
  const auto begin = count_from(offsets[0]);
  if (!begin) return error("offset {}", begin.error().message);
  const auto end = count_from(offsets[1]);
  if (!end) return error("offset {}", end.error().message);
  if (*begin > *end) return error("data_offsets [{}, {}] run backwards", *begin, *end);
  const auto bytes = bytes_of(*shape, *dtype);
  if (!bytes) return error("shape {} overflows", shape_text(*shape));
  if (*bytes != *end - *begin)
    return error("shape {} of {} needs {} bytes, data_offsets [{}, {}] hold {}", shape_text(*shape), dtype_name(*dtype),
                 *bytes, *begin, *end, *end - *begin);
  return Placed{{name, *dtype, std::move(*shape), {}}, *begin, *end};
}

/// Sorts by place and holds the tensors against each other and against the size of the data.
Result<void> check_places(std::vector<Placed>& placed, std::int64_t data_bytes, const std::string& file_name) {
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  std::int64_t at = 0;
  const Placed* previous = nullptr;
  for (const Placed& p : placed) {
    if (p.end > data_bytes)
      return error("{}: tensor '{}': data_offsets [{}, {}] go beyond the {} bytes of data: the file is truncated",
                   file_name, p.tensor.name, p.begin, p.end, data_bytes);
    if (p.begin < at)
      return error("{}: tensor '{}': data_offsets [{}, {}] overlap those of tensor '{}', which end at {}", file_name,
                   p.tensor.name, p.begin, p.end, previous->tensor.name, at);
    if (p.begin > at)
      return error("{}: tensor '{}': data_offsets [{}, {}] leave a hole after byte {}", file_name, p.tensor.name,
                   p.begin, p.end, at);
    at = p.end;
    previous = &p;
  }
  if (at != data_bytes) return error("{}: {} bytes of data, but the tensors end at {}", file_name, data_bytes, at);
  return {};
}

Result<std::map<std::string, std::string>> metadata_from(const json& value, const std::string& file_name) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) return error("{}: __metadata__ is not an object", file_name);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return error("{}: __metadata__ '{}' is not a string", file_name, key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// The header's text, after the checks on its length.
Result<std::string_view> header_text(std::span<const std::byte> bytes, const std::string& file_name) {
  if (bytes.size() < kLengthBytes)
    return error("{}: {} bytes are too few for a safetensors file: truncated, or another format", file_name,
                 bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeaderBytes)
    return error("{}: a header of {} bytes is above the limit of {}: not a safetensors file?", file_name, length,
                 kMaxHeaderBytes);
  if (length > bytes.size() - kLengthBytes)
    return error("{}: the header should have {} bytes, but the file ends after {}: truncated", file_name, length,
                 bytes.size() - kLengthBytes);
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
}

/// An open file descriptor, closed on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

template <class T>
std::span<const std::byte> as_stored(std::span<const T> values) {
  return std::as_bytes(values);
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& file_name) {
  const auto text = header_text(bytes, file_name);
  if (!text) return tl::unexpected(text.error());
  const auto header = parse_json_strictly(*text, file_name + ": header");
  if (!header) return tl::unexpected(header.error());
  if (!header->is_object()) return error("{}: header: not a JSON object", file_name);

  SafetensorsFile file;
  file.file_name_ = file_name;
  const auto data = bytes.subspan(kLengthBytes + text->size());
  std::vector<Placed> placed;
  for (const auto& [name, entry] : header->items()) {
    if (name == kMetadataKey) {
      auto metadata = metadata_from(entry, file_name);
      if (!metadata) return tl::unexpected(metadata.error());
      file.metadata_ = std::move(*metadata);
      continue;
    }
    auto tensor = placed_from(name, entry);
    if (!tensor) return error("{}: tensor '{}': {}", file_name, name, tensor.error().message);
    placed.push_back(std::move(*tensor));
  }
  if (auto good = check_places(placed, static_cast<std::int64_t>(data.size()), file_name); !good)
    return tl::unexpected(good.error());
  for (Placed& p : placed) {
    p.tensor.bytes = data.subspan(static_cast<std::size_t>(p.begin), static_cast<std::size_t>(p.end - p.begin));
    file.index_[p.tensor.name] = file.tensors_.size();
    file.tensors_.push_back(std::move(p.tensor));
  }
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  const auto opened = open_regular_file(path);
  if (!opened) return tl::unexpected(opened.error());
  const Descriptor fd(*opened);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return error("{}: cannot read: {}", path.string(), system_reason(errno));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return error("{}: the file is empty", path.string());
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return error("{}: cannot map: {}", path.string(), system_reason(errno));
  const std::shared_ptr<const void> mapping(address, [size](void* mapped) { ::munmap(mapped, size); });
  auto file = parse({static_cast<const std::byte*>(address), size}, path.string());
  if (file) file->mapping_ = mapping;
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

template <class T>
Result<std::vector<T>> SafetensorsFile::read(std::string_view name, DType dtype) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) return error("{}: no tensor '{}'", file_name_, name);
  if (tensor->dtype != dtype)
    return error("{}: tensor '{}' has dtype {}, expected {}", file_name_, name, dtype_name(tensor->dtype),
                 dtype_name(dtype));
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

Result<std::vector<float>> SafetensorsFile::read_f32(std::string_view name) const {
  return read<float>(name, DType::f32);
}
Result<std::vector<double>> SafetensorsFile::read_f64(std::string_view name) const {
  return read<double>(name, DType::f64);
}
Result<std::vector<std::int32_t>> SafetensorsFile::read_i32(std::string_view name) const {
  return read<std::int32_t>(name, DType::i32);
}
Result<std::vector<std::int64_t>> SafetensorsFile::read_i64(std::string_view name) const {
  return read<std::int64_t>(name, DType::i64);
}
Result<std::vector<std::uint16_t>> SafetensorsFile::read_u16(std::string_view name) const {
  return read<std::uint16_t>(name, DType::u16);
}
Result<std::vector<std::uint8_t>> SafetensorsFile::read_u8(std::string_view name) const {
  return read<std::uint8_t>(name, DType::u8);
}

void SafetensorsWriter::add_bytes(std::string name, DType dtype, std::vector<std::int64_t> shape,
                                  std::span<const std::byte> bytes) {
  const auto needed = bytes_of(shape, dtype);
  CHECK(needed && *needed == static_cast<std::int64_t>(bytes.size()));
  CHECK(name != kMetadataKey);
  tensors_.push_back({std::move(name), dtype, std::move(shape), {bytes.begin(), bytes.end()}});
}

void SafetensorsWriter::add_f32(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
  add_bytes(std::move(name), DType::f32, std::move(shape), as_stored(values));
}
void SafetensorsWriter::add_f64(std::string name, std::vector<std::int64_t> shape, std::span<const double> values) {
  add_bytes(std::move(name), DType::f64, std::move(shape), as_stored(values));
}
void SafetensorsWriter::add_i32(std::string name, std::vector<std::int64_t> shape,
                                std::span<const std::int32_t> values) {
  add_bytes(std::move(name), DType::i32, std::move(shape), as_stored(values));
}
void SafetensorsWriter::add_i64(std::string name, std::vector<std::int64_t> shape,
                                std::span<const std::int64_t> values) {
  add_bytes(std::move(name), DType::i64, std::move(shape), as_stored(values));
}

void SafetensorsWriter::set_metadata(std::string key, std::string value) {
  metadata_.emplace_back(std::move(key), std::move(value));
}

std::string SafetensorsWriter::header() const {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata_) header[std::string(kMetadataKey)][key] = value;
  std::set<std::string_view> names;
  std::size_t at = 0;
  for (const Pending& tensor : tensors_) {
    CHECK(names.insert(tensor.name).second);
    // ordered_json looks a key up linearly; push_back of a pair does not, and the names are known to differ.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor.name, nlohmann::ordered_json{{"dtype", dtype_name(tensor.dtype)},
                                            {"shape", tensor.shape},
                                            {"data_offsets", {at, at + tensor.bytes.size()}}});
    at += tensor.bytes.size();
  }
  // Names come from us or from files already parsed; bytes that are not UTF-8 become U+FFFD instead of an exception.
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

std::string SafetensorsWriter::bytes() const {
  std::string all = header();
  for (const Pending& tensor : tensors_)
    all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  return all;
}

Result<void> SafetensorsWriter::write(const std::filesystem::path& path) const {
  const std::string head = header();
  std::vector<std::string_view> parts{head};
  for (const Pending& tensor : tensors_)
    parts.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  return write_file_durably(path, parts);
}

}  // namespace plumb

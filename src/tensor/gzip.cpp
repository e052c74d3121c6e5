#include "tensor/gzip.h"

#include <limits>
#include <memory>
#include <utility>

#include <zlib.h>

#include "base/durable_file.h"

namespace plumb {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, with gzip's header and checksum
constexpr std::size_t kChunk = 1 << 16;
constexpr std::size_t kMaxPackedBytes = std::numeric_limits<uInt>::max();  // what zlib takes at once

}  // namespace

Result<std::string> read_gzip(const std::filesystem::path& path, std::int64_t most_bytes) {
  auto file = read_file(path, kMaxPackedBytes);
  if (!file) return file;
  std::string packed = std::move(*file);

  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return error("{}: not enough memory to inflate", path.string());
  const std::unique_ptr<z_stream, int (*)(z_stream*)> cleanup(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string content;
  for (int status = Z_OK; status != Z_STREAM_END;) {  // each turn adds bytes (bounded by most_bytes) or returns
    char chunk[kChunk];
    stream.next_out = reinterpret_cast<Bytef*>(chunk);
    stream.avail_out = kChunk;
    status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END)
      return error("{}: damaged or cut short: {}", path.string(), stream.msg != nullptr ? stream.msg : zError(status));
    content.append(chunk, kChunk - stream.avail_out);
    if (static_cast<std::int64_t>(content.size()) > most_bytes)
      return error("{}: more than {} bytes inflated", path.string(), most_bytes);
  }
  if (stream.avail_in != 0) return error("{}: {} bytes after the end", path.string(), stream.avail_in);
  return content;
}

}  // namespace plumb

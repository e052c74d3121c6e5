#include "tensor/gzip.h"

#include <fstream>

#include <gtest/gtest.h>

namespace plumb {
namespace {

// `printf 'plumb plumb plumb' | gzip -n`, made once.
const unsigned char kPacked[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x2b, 0xc8, 0x29, 0xcd,
                                 0x4d, 0x52, 0x28, 0x40, 0x90, 0x00, 0x6f, 0x84, 0x0b, 0x3d, 0x11, 0x00, 0x00, 0x00};

TEST(Gzip, ReadsWholeFilesAndNothingElse) {
  const auto path = std::filesystem::path(testing::TempDir()) / "plumb_gzip_test.gz";
  const std::string good(reinterpret_cast<const char*>(kPacked), sizeof kPacked);
  const auto read = [&](const std::string& bytes, std::int64_t most_bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return read_gzip(path, most_bytes);
  };
  const auto content = read(good, 17);
  ASSERT_TRUE(content) << content.error().message;
  EXPECT_EQ(*content, "plumb plumb plumb");
  EXPECT_EQ(read(good, 16).error().message, path.string() + ": more than 16 bytes inflated");
  EXPECT_EQ(read(good + "x", 17).error().message, path.string() + ": 1 bytes after the end");
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(read(good.substr(0, size), 17)) << size;
  std::string wrong = good;
  wrong[wrong.size() - 8] = static_cast<char>(wrong[wrong.size() - 8] ^ 1);  // the checksum
  EXPECT_EQ(read(wrong, 17).error().message, path.string() + ": damaged or cut short: incorrect data check");
  std::filesystem::remove(path);
  EXPECT_EQ(read_gzip(path, 1).error().message, path.string() + ": cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace plumb

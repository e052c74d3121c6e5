#include "tensor/safetensors.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/rng.h"

namespace plumb {
namespace {

std::filesystem::path scratch(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / ("plumb_safetensors_" + name);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// A file with this header and so many bytes of data.
std::string file_with(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + std::string(data_bytes, '\1');
}

std::string message_of(const std::string& file) {
  const auto parsed = SafetensorsFile::parse(bytes_of(file), "x.safetensors");
  return parsed ? "accepted" : parsed.error().message;
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  Rng rng{1};
  std::vector<float> f32(6);
  for (float& v : f32) v = static_cast<float>(rng.normal());
  const std::vector<double> f64{1.0 / 3, -0.0};
  const std::vector<std::int32_t> i32{-1, 7};
  const std::vector<std::int64_t> i64{INT64_MIN, 5};
  SafetensorsWriter writer;
  writer.add_i64("z", {2}, i64);
  writer.add_f32("a", {2, 3}, f32);
  writer.add_f64("m", {2, 1}, f64);
  writer.add_i32("scalar", {}, std::span(i32).first(1));
  writer.add_i32("none", {0, 5}, {});
  writer.set_metadata("format", "pt");
  const auto path = scratch("round.safetensors");
  const auto written = writer.write(path);
  ASSERT_TRUE(written) << written.error().message;

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*file->read_i64("z"), i64);
  EXPECT_EQ(*file->read_f32("a"), f32);
  EXPECT_EQ(*file->read_f64("m"), f64);
  EXPECT_TRUE(std::signbit((*file->read_f64("m"))[1]));
  EXPECT_EQ(*file->read_i32("scalar"), std::vector<std::int32_t>{-1});
  EXPECT_TRUE(file->read_i32("none")->empty());
  EXPECT_EQ(file->find("a")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file->find("b"), nullptr);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->tensors().front().name, "z");  // the order of adding
  EXPECT_EQ(file->read_f32("z").error().message, path.string() + ": tensor 'z' has dtype I64, expected F32");
  EXPECT_EQ(file->read_f32("b").error().message, path.string() + ": no tensor 'b'");
  std::filesystem::remove(path);
}

TEST(Safetensors, WritingLeavesNoTemporaryFileAndReplacesTheOldOne) {
  const auto folder = scratch("folder");
  std::filesystem::create_directory(folder);
  const auto path = folder / "t.safetensors";
  for (const std::int32_t value : {1, 2}) {
    SafetensorsWriter writer;
    writer.add_i32("v", {1}, std::span(&value, 1));
    ASSERT_TRUE(writer.write(path));
    EXPECT_EQ(*SafetensorsFile::open(path)->read_i32("v"), std::vector{value});
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0111u, 0u);
  std::filesystem::remove_all(folder);
  EXPECT_NE(SafetensorsWriter().write(path).error().message.find("No such file or directory"), std::string::npos);
}

TEST(Safetensors, ReadsAFileMadeByAnotherWriter) {
  const auto file = SafetensorsFile::open(PLUMB_SOURCE_DIR "/tests/golden/tiny-random-a/io.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("logits_prefill_fp64")->shape, (std::vector<std::int64_t>{520, 256}));
  EXPECT_EQ(file->read_i32("input_ids")->size(), 520u);
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* message;  // all of it
};

class SafetensorsBad : public testing::TestWithParam<BadFile> {};

TEST_P(SafetensorsBad, IsRefusedWithItsReason) { EXPECT_EQ(message_of(GetParam().bytes), GetParam().message); }

std::string one(const std::string& entry, std::size_t data_bytes = 8) {
  return file_with("{\"t\":" + entry + "}", data_bytes);
}

const BadFile kBadFiles[] = {
    {"TooShort", "1234567", "x.safetensors: 7 bytes are too few for a safetensors file: truncated, or another format"},
    {"HeaderLengthLies", file_with("{}", 0).replace(0, 1, 1, '\x7f'),
     "x.safetensors: the header should have 127 bytes, but the file ends after 2: truncated"},
    {"HeaderTooLong", std::string(8, '\x7f') + "{}",
     "x.safetensors: a header of 9187201950435737471 bytes is above the limit of 100000000: not a safetensors file?"},
    {"NotAnObject", file_with("[1]", 0), "x.safetensors: header: not a JSON object"},
    {"TensorTwice",
     file_with(
         R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
         1),
     "x.safetensors: header: key 't' appears twice in one object"},
    {"KeyTwice", one(R"({"dtype":"F32","dtype":"F64","shape":[2],"data_offsets":[0,8]})"),
     "x.safetensors: header: key 'dtype' appears twice in one object"},
    {"EntryNotAnObject", one("3"), "x.safetensors: tensor 't': its header entry is not an object"},
    {"NoShape", one(R"({"dtype":"F32","data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': its header entry has no 'shape'"},
    {"UnknownEntryKey", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1]})"),
     "x.safetensors: tensor 't': unknown header key 'strides'"},
    {"UnknownDtype", one(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': unknown dtype \"F33\""},
    {"DtypeNotAString", one(R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': dtype 4 is not a string"},
    {"NegativeDimension", one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': dimension -2 is negative"},
    {"FractionalDimension", one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': dimension 2.0 is not an integer"},
    {"DimensionAbove63Bits", one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': dimension 18446744073709551615 is too large"},
    {"ShapeOverflows", one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': shape [4294967296, 4294967296] overflows"},
    {"ShapeNotAnArray", one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': shape is not an array"},
    {"OffsetsNotAPair", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"),
     "x.safetensors: tensor 't': data_offsets is not [begin, end]"},
    {"NegativeOffset", one(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"),
     "x.safetensors: tensor 't': offset -8 is negative"},
    {"OffsetsBackwards", one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
     "x.safetensors: tensor 't': data_offsets [8, 0] run backwards"},
    {"SizeDiffersFromShape", one(R"({"dtype":"BF16","shape":[2],"data_offsets":[0,8]})"),
     "x.safetensors: tensor 't': shape [2] of BF16 needs 4 bytes, data_offsets [0, 8] hold 8"},
    {"Truncated", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 7),
     "x.safetensors: tensor 't': data_offsets [0, 8] go beyond the 7 bytes of data: the file is truncated"},
    {"TrailingBytes", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 9),
     "x.safetensors: 9 bytes of data, but the tensors end at 8"},
    {"Overlap",
     file_with(
         R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
         7),
     "x.safetensors: tensor 'b': data_offsets [3, 7] overlap those of tensor 'a', which end at 4"},
    {"Hole",
     file_with(
         R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})",
         7),
     "x.safetensors: tensor 'b': data_offsets [5, 7] leave a hole after byte 4"},
    {"HoleAtTheStart", one(R"({"dtype":"U8","shape":[2],"data_offsets":[5,7]})", 7),
     "x.safetensors: tensor 't': data_offsets [5, 7] leave a hole after byte 0"},
    {"MetadataNotText", file_with(R"({"__metadata__":{"a":1}})", 0), "x.safetensors: __metadata__ 'a' is not a string"},
};

INSTANTIATE_TEST_SUITE_P(Table, SafetensorsBad, testing::ValuesIn(kBadFiles),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(Safetensors, HeaderThatIsNoJsonIsRefused) {
  EXPECT_EQ(message_of(file_with("{\"t\":", 0)).rfind("x.safetensors: header: not valid JSON: ", 0), 0u);
  EXPECT_EQ(message_of(file_with("{} {}", 0)).rfind("x.safetensors: header: not valid JSON: ", 0), 0u);
  EXPECT_EQ(message_of(file_with("{\"\xff\":1}", 0)).rfind("x.safetensors: header: not valid JSON: ", 0), 0u);
  const std::string deep = "{\"t\":" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_EQ(message_of(file_with(deep, 0)), "x.safetensors: header: nested deeper than 64");
}

TEST(Safetensors, MissingAndEmptyFilesAndFoldersAreRefused) {
  const auto path = scratch("missing");
  EXPECT_EQ(SafetensorsFile::open(path).error().message,
            path.string() + ": cannot be opened: No such file or directory");
  std::ofstream(path).close();
  EXPECT_EQ(SafetensorsFile::open(path).error().message, path.string() + ": the file is empty");
  std::filesystem::remove(path);
  EXPECT_NE(SafetensorsFile::open(testing::TempDir()).error().message.find("not a regular file"), std::string::npos);
}

// Whatever is cut off or changed in a good file: a message or a consistent file, never a crash (the sanitizers watch).
TEST(Safetensors, DamagedFilesNeverCrash) {
  SafetensorsWriter writer;
  const std::vector<float> values(12, 1.0f);
  writer.add_f32("a", {3, 4}, values);
  writer.add_f32("b", {12}, values);
  const std::string good = writer.bytes();
  ASSERT_EQ(message_of(good), "accepted");
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(message_of(good.substr(0, size)), "accepted") << size;
  Rng rng{2};
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (std::uint64_t edits = 1 + rng.below(3); edits > 0; --edits)
      bad[rng.below(bad.size())] = static_cast<char>(rng.below(256));
    message_of(bad);
  }
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);  // tie, even below
  EXPECT_EQ(f32_to_bf16(1.0f + 0x3p-8f), 0x3f82);  // tie, even above
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1.1p-8f), 0x3f81);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(NAN))));
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (std::isnan(bf16_to_f32(half))) continue;
    EXPECT_EQ(f32_to_bf16(bf16_to_f32(half)), half);
  }
}

}  // namespace
}  // namespace plumb

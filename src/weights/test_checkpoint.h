#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/safetensors.h"
#include "weights/model.h"

namespace plumb {

/// A folder of its own that is gone after the test.
class Folder {
 public:
  Folder() : path_(std::filesystem::path(testing::TempDir()) / ("plumb_checkpoint_" + test_name())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }

 private:
  static std::string test_name() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "_" + test->name();
    for (char& c : name)
      if (c == '/') c = '_';
    return name;
  }
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline Model loaded(const std::filesystem::path& folder) {
  auto model = load_model(folder);
  EXPECT_TRUE(model) << model.error().message;
  return model ? std::move(*model) : Model{};
}

/// A tensor that a test may change before it is written.
struct Tensor {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  template <class T>
  void set(std::size_t index, T value) {
    std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
  }
};
using Tensors = std::map<std::string, Tensor>;

inline Tensors tensors_of(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file) << file.error().message;
  Tensors tensors;
  for (const StoredTensor& t : file->tensors()) tensors[t.name] = {t.dtype, t.shape, {t.bytes.begin(), t.bytes.end()}};
  return tensors;
}

inline void write_tensors(const Tensors& tensors, const std::filesystem::path& path) {
  SafetensorsWriter writer;
  for (const auto& [name, t] : tensors) writer.add_bytes(name, t.dtype, t.shape, t.bytes);
  const auto written = writer.write(path);
  ASSERT_TRUE(written) << written.error().message;
}

}  // namespace plumb

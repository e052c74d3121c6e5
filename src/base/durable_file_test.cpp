#include "base/durable_file.h"

#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plumb {
namespace {

class DurableFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "plumb-file-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
};

TEST_F(DurableFile, ReplacesOrRefusesATakenNameAndLeavesNothingElse) {
  const auto path = folder / "f";
  ASSERT_TRUE(create_file_durably(path, "first", 0600));
  EXPECT_FALSE(create_file_durably(path, "second"));
  EXPECT_EQ(*read_file(path), "first");
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_TRUE(write_file_durably(path, "third"));
  EXPECT_EQ(*read_file(path), "third");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(DurableFile, SaysWhatCannotBeReadOrWritten) {
  EXPECT_FALSE(write_file_durably(folder / "no" / "f", ""));
  EXPECT_FALSE(read_file(folder / "no"));
  EXPECT_FALSE(read_file(folder));
  ASSERT_TRUE(write_file_durably(folder / "f", std::string(1000, 'x')));
  EXPECT_FALSE(read_file(folder / "f", 999));
  EXPECT_EQ(read_file(folder / "f", 1000)->size(), 1000u);
}

}  // namespace
}  // namespace plumb

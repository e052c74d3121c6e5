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

// Whatever is no regular file stays what it is, and nothing appears beside it.
TEST_F(DurableFile, ReplacesNothingButRegularFiles) {
  const auto pipe = folder / "pipe", directory = folder / "directory", link = folder / "link", loop = folder / "loop";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_directory(directory);
  std::filesystem::create_symlink("/dev/null", link);
  std::filesystem::create_symlink(loop, loop);
  for (const auto& path : {pipe, directory, link, std::filesystem::path("/dev/null")}) {
    const auto written = write_file_durably(path, "x");
    ASSERT_FALSE(written) << path;
    EXPECT_EQ(written.error().message, path.string() + ": is there and is not a regular file; choose another name");
    EXPECT_FALSE(create_file_durably(path, "x")) << path;
  }
  EXPECT_FALSE(write_file_durably(loop, "x"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 4);
}

TEST_F(DurableFile, ReplacesTheFileThatALinkLeadsTo) {
  std::filesystem::create_directory(folder / "far");
  std::filesystem::create_symlink("far/f", folder / "second");
  std::filesystem::create_symlink("second", folder / "first");
  for (const char* text : {"new", "replaced"}) {
    ASSERT_TRUE(write_file_durably(folder / "first", text));
    EXPECT_EQ(*read_file(folder / "far" / "f"), text);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "first"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "second"));
}

// A pipe without a writer would hold the reader for ever, /dev/zero would have no end.
TEST_F(DurableFile, ReadsNothingButRegularFiles) {
  const auto pipe = folder / "pipe", link = folder / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, link);
  for (const auto& path : {pipe, link, folder, std::filesystem::path("/dev/zero")}) {
    const auto text = read_file(path);
    ASSERT_FALSE(text) << path;
    EXPECT_EQ(text.error().message, path.string() + ": not a regular file");
  }
}

TEST_F(DurableFile, SaysWhetherAFolderIsMissingOrNone) {
  EXPECT_TRUE(check_folder(folder));
  EXPECT_EQ(check_folder(folder / "no").error().message, (folder / "no").string() + ": no such folder");
  EXPECT_EQ(check_folder("/dev/null").error().message, "/dev/null: not a folder");
}

}  // namespace
}  // namespace plumb

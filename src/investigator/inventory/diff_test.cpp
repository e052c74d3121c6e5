#include "investigator/inventory/diff.h"

#include <fstream>

#include <gtest/gtest.h>

#include "investigator/inventory/test_repository.h"

namespace plumb::investigator::inventory {
namespace {

TEST(ReadRange, GivesHunksWithBothSidesAndCountsWhatIsSetAside) {
  TestRepository repo;
  const std::string a = repo.commit({{"model/a.py", "x = 1\ny = 2\nz = 3\n"},
                                     {"README.md", "a"},
                                     {"t.bin.py", std::string("\0\1\2", 3)},
                                     {"gone.cu", "int a;\n"}});
  const std::string b = repo.commit({{"model/a.py", "x = 1\ny = 5\nz = 3\n"},
                                     {"README.md", "b"},
                                     {"t.bin.py", std::string("\0\1\3", 3)},
                                     {"huge.py", std::string(kHugeBytes + 1, '#')},
                                     {"bad.py", "s = '\xff\xfe'\n"},
                                     {"data.json", "{}"},
                                     {"tests/test_a.py", "assert 1\n"},
                                     {"tools/convert_weights.py", "x = 1\n"},
                                     {"third_party/x", "1234567890123456789012345678901234567890"}},
                                    {{"third_party/x", GIT_FILEMODE_COMMIT}});
  const auto diff = read_range(repo.folder(), a + ".." + b);
  ASSERT_TRUE(diff) << diff.error().message;
  EXPECT_EQ(diff->from, a);
  EXPECT_EQ(diff->to, b);
  const DiffCounts& n = diff->counts;
  EXPECT_EQ(n.changed, 10);
  EXPECT_EQ(n.read, 5);  // model/a.py, gone.cu, bad.py, the test, the converter
  EXPECT_EQ(n.tests, 1);
  EXPECT_EQ(n.converters, 1);
  EXPECT_EQ(n.docs, 1);
  EXPECT_EQ(n.other_language, 1);
  EXPECT_EQ(n.binary, 1);
  EXPECT_EQ(n.huge, 1);
  EXPECT_EQ(n.submodules, 1);
  EXPECT_EQ(n.not_utf8, 1);
  EXPECT_EQ(n.changed, n.read + n.docs + n.other_language + n.binary + n.huge + n.submodules + n.links);
  const auto it =
      std::find_if(diff->files.begin(), diff->files.end(), [](const ChangedFile& f) { return f.path == "model/a.py"; });
  ASSERT_NE(it, diff->files.end());
  ASSERT_EQ(it->hunks.size(), 1U);
  EXPECT_EQ(it->hunks[0].header(), "@@ -1,3 +1,3 @@");
  ASSERT_EQ(it->hunks[0].removed.size(), 1U);
  EXPECT_EQ(it->hunks[0].removed[0].line, 2);
  EXPECT_EQ(it->hunks[0].added[0].line, 2);
}

TEST(ReadRange, SaysWhatIsWrongWithItsInput) {
  TestRepository repo;
  const std::string a = repo.commit({{"a.py", "x = 1\n"}});
  const auto message = [](const auto& result) { return result ? std::string() : result.error().message; };
  EXPECT_NE(message(read_range("/nonexistent", "A..B")).find("not a git repository"), std::string::npos);
  EXPECT_NE(message(read_range(repo.folder(), "HEAD")).find("write A..B"), std::string::npos);
  EXPECT_NE(message(read_range(repo.folder(), "..")).find("names no revision"), std::string::npos);
  EXPECT_NE(message(read_range(repo.folder(), "nothing..HEAD")).find("'nothing' is not in this repository"),
            std::string::npos);
  EXPECT_TRUE(read_range(repo.folder(), a + ".."));
}

// What `git clone --depth 1` leaves: a file that names the commits whose parents are not there.
TEST(ReadRange, TellsAShallowClone) {
  TestRepository repo;
  repo.commit({{"a.py", "x = 1\n"}});
  const std::string b = repo.commit({{"a.py", "x = 2\n"}});
  std::ofstream(repo.folder() / "shallow") << b << "\n";
  const auto both = read_range(repo.folder(), b + ".." + b);
  ASSERT_TRUE(both) << both.error().message;
  ASSERT_EQ(both->notes.size(), 1U);
  EXPECT_NE(both->notes[0].find("shallow"), std::string::npos);
  const auto missing = read_range(repo.folder(), "v1.0..HEAD");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("--unshallow"), std::string::npos);
}

}  // namespace
}  // namespace plumb::investigator::inventory

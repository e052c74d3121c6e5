#include "model/encoding.h"

#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "model/config.h"

namespace plumb {
namespace {

const std::filesystem::path kPhantom = std::filesystem::path(PLUMB_SOURCE_DIR) / "phantom/checkpoint";

TEST(Encoding, IsHeldAgainstTheConfigOfItsCheckpoint) {
  const auto good = load_model_config(kPhantom);
  ASSERT_TRUE(good);
  EXPECT_TRUE(load_encoding(kPhantom, *good));
  const auto message = [&](const auto& change) {
    ModelConfig config = *good;
    change(config);
    return load_encoding(kPhantom, config).error().message.substr(kPhantom.string().size());
  };
  const std::int64_t size = good->vocab_size;
  EXPECT_EQ(message([](ModelConfig& c) { ++c.vocab_size; }),
            fmt::format(": vocabulary size is {} in tokenizer.json, but {} in config.json", size, size + 1));
  EXPECT_EQ(message([](ModelConfig& c) { c.bos_token_id = 1; }), ": bos is 0 in tokenizer.json, but 1 in config.json");
  EXPECT_EQ(message([](ModelConfig& c) { c.eos_token_id = 5; }), ": eos is 1 in tokenizer.json, but 5 in config.json");
}

TEST(Encoding, AFolderWithoutATokenizerIsRefused) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("plumb_encoding_test" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(load_encoding(folder).error().message, folder.string() + ": no such folder");
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["DeepseekV4ForCausalLM"]})";
  const std::string path = (folder / "tokenizer.json").string();
  EXPECT_NE(load_encoding(folder).error().message.find(path), std::string::npos);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_NE(load_encoding(folder).error().message.find("not a regular file"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace plumb

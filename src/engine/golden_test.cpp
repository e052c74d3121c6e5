#include "engine/golden.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "engine/test_model.h"
#include "tensor/safetensors.h"

namespace plumb {
namespace {

class TinyGolden : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new std::shared_ptr<const Model>(load_test_model("tests/golden/tiny-random-a"));
    io_ = new SafetensorsFile(open_test_file("tests/golden/tiny-random-a/io.safetensors"));
    trace_ = new SafetensorsFile(open_test_file("tests/golden/tiny-random-a/trace.safetensors"));
  }
  static std::shared_ptr<const Model>* model_;
  static SafetensorsFile* io_;
  static SafetensorsFile* trace_;

  static std::vector<std::int32_t> ids() { return io_->read_i32("input_ids").value(); }
};
std::shared_ptr<const Model>* TinyGolden::model_ = nullptr;
SafetensorsFile* TinyGolden::io_ = nullptr;
SafetensorsFile* TinyGolden::trace_ = nullptr;

TEST_F(TinyGolden, LogitsEqualTransformersInEveryChunking) {
  Engine engine(*model_, std::make_shared<InlineExecutor>());
  const auto want32 = io_->read_f32("logits_prefill_fp32").value();
  const auto want64 = io_->read_f64("logits_prefill_fp64").value();
  std::vector<float> one_shot;
  for (const int chunk : {0, 1, 3, 5, 127, 128, 129}) {
    const std::vector<float> logits = run_prompt(engine, ids(), chunk, Settings(), nullptr);
    const Difference to32 = difference(logits, want32), to64 = difference(logits, want64);
    EXPECT_LE(to32.relative, 5e-6) << "chunk " << chunk;
    EXPECT_LE(to32.max_abs, 5e-5) << "chunk " << chunk;
    EXPECT_LE(to64.relative, 1e-6) << "chunk " << chunk;
    if (chunk == 0) {
      one_shot = logits;
      RecordProperty("relative_to_fp64", std::to_string(to64.relative));
      std::printf("relative to fp32 %.2e, to fp64 %.2e, max abs %.2e\n", to32.relative, to64.relative, to32.max_abs);
    }
    EXPECT_TRUE(same_bits(logits, one_shot)) << "chunk " << chunk;
  }
}

}  // namespace
}  // namespace plumb

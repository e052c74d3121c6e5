#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "engine/golden.h"
#include "engine/test_model.h"
#include "weights/export.h"

namespace plumb {
namespace {

constexpr const char* kTiny = "tests/golden/tiny-random-a";

class ExportLogits : public testing::TestWithParam<ExportForm> {};
INSTANTIATE_TEST_SUITE_P(Forms, ExportLogits,
                         testing::Values(ExportForm::release, ExportForm::release_fp8_fp4, ExportForm::nvfp4),
                         [](const auto& form) { return std::to_string(static_cast<int>(form.param)); });

/// The model as it comes back from a folder of the form.
std::shared_ptr<const Model> through_files(const Model& model, ExportForm form) {
  const auto source = std::filesystem::path(PLUMB_SOURCE_DIR) / kTiny;
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("plumb_export_logits_" + std::string(export_form_name(form)));
  std::filesystem::remove_all(folder);
  const auto summary = export_checkpoint(model, form, source, folder);
  EXPECT_TRUE(summary) << summary.error().message;
  auto loaded = load_model(folder);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return loaded ? std::make_shared<const Model>(std::move(*loaded)) : nullptr;
}

// Logits of an export, loaded from its files, are those that an independent model in float64 computes from weights that
// numpy and ml_dtypes rounded; tests/golden/exports/README.md says how. Bounds: the pass marks of tiny-random-a.
TEST_P(ExportLogits, AreThoseOfAnIndependentModelWithIndependentRounding) {
  const auto golden = open_test_file("tests/golden/exports/logits.safetensors");
  const auto ids = golden.read_i32("input_ids").value(), rows = golden.read_i32("rows").value();
  const auto model = load_test_model(kTiny);
  const auto rounded = through_files(*model, GetParam());
  ASSERT_NE(rounded, nullptr);
  EXPECT_NE(rounded->hash, model->hash);
  Engine engine(rounded, std::make_shared<InlineExecutor>(), Backend::ref);
  const std::vector<float> all = run_prompt(engine, ids, 0, Settings(), nullptr);
  std::vector<float> logits;
  const auto width = static_cast<std::ptrdiff_t>(model->config.vocab_size);
  for (const std::int32_t row : rows)
    logits.insert(logits.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  const auto want = golden.read_f32(export_form_name(GetParam())).value();
  const Difference to = difference(logits, want);
  EXPECT_LE(to.relative, 5e-6);
  EXPECT_LE(to.max_abs, 5e-5);
  // The forms are told apart: another form's logits are far away.
  const auto other = golden.read_f32(GetParam() == ExportForm::nvfp4 ? "release-fp8-fp4" : "nvfp4").value();
  EXPECT_GE(difference(logits, other).relative, 1e-2);
}

}  // namespace
}  // namespace plumb

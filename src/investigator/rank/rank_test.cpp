#include "investigator/rank/rank.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "investigator/inventory/test_repository.h"

namespace plumb::investigator::rank {
namespace {

using Files = std::map<std::string, std::string>;

inventory::Inventory take(const Files& before, const Files& after) {
  inventory::TestRepository repo;
  const std::string a = repo.commit(before), b = repo.commit(after);
  auto found = inventory::take_inventory(repo.folder(), a + ".." + b);
  EXPECT_TRUE(found);
  return *found;
}

inventory::Inventory take_one(const std::string& path, const std::string& before, const std::string& after) {
  return take({{path, before}}, {{path, after}});
}

// The study's estimate: two bf16 operands, 0.39 % a layer, 2.6 % over 43 layers.
TEST(Rank, GivesTheStudysEstimateForTheMixingProduct) {
  const auto found = take_one("srt/layers/mhc.py", "def mix(x, fn):\n    return F.linear(x.float(), fn.float())\n",
                              "def mix(x, fn):\n    return F.linear(x.bfloat16(), fn.bfloat16())\n");
  const Ranking ranking = rank(found, {.layers = 43, .symptoms = {}});
  ASSERT_EQ(ranking.suspects.size(), 1U);
  const Suspect& s = ranking.suspects[0];
  EXPECT_EQ(s.cls, inventory::Class::gemm_precision);
  EXPECT_EQ(s.tier, 1);
  EXPECT_DOUBLE_EQ(s.prior, 1.0);
  ASSERT_TRUE(s.predicted_rel_error && s.predicted_rel_error_depth);
  EXPECT_DOUBLE_EQ(*s.predicted_rel_error, 2 * 0x1p-9);
  EXPECT_DOUBLE_EQ(*s.predicted_rel_error_depth, 2 * 0x1p-9 * std::sqrt(43.0));
  EXPECT_NE(s.reason.find("87 sites"), std::string::npos) << s.reason;  // two a layer and one at the end
  EXPECT_NE(s.reason.find("Measured elsewhere: 0.17 %"), std::string::npos) << s.reason;
  const auto json = to_json(found, ranking);
  for (const char* key : {"file", "hunk", "class", "tier", "prior", "phase", "predicted_rel_error",
                          "predicted_rel_error_depth", "reason", "probe", "open_questions"})
    EXPECT_TRUE(json["suspects"][0].contains(key)) << key;
}

TEST(Rank, ATruncationAddsUpOverLayers) {
  const auto found = take_one("csrc/mhc.cu", "void f(float* x, float v) {\n  x[0] = v;\n}\n",
                              "void f(__nv_bfloat16* x, float v) {\n  x[0] = __float2bfloat16_rz(v);\n}\n");
  const Ranking ranking = rank(found, {.layers = 10, .symptoms = {}});
  ASSERT_FALSE(ranking.suspects.empty());
  ASSERT_TRUE(ranking.suspects[0].predicted_rel_error);
  EXPECT_DOUBLE_EQ(*ranking.suspects[0].predicted_rel_error_depth, *ranking.suspects[0].predicted_rel_error * 10);
}

// The constant of the header, by integration over the significand.
TEST(Rank, RmsOfARoundingIsThatOfEvenSignificands) {
  constexpr int kSteps = 100'000;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) sum += std::exp2(-2 * (i + 0.5) / kSteps);
  const double spacing = 4;  // in units of the study's roundoff: bf16 has 2^-7 = 4 * 2^-9
  EXPECT_NEAR(spacing / std::sqrt(12.0) * std::sqrt(sum / kSteps), kRmsOfUnitRoundoff, 1e-4);
}

TEST(Rank, AGateThatIsOffLowersAndALaunchScriptThatSetsItRaises) {
  const std::string before = "F = os.environ.get('SRT_FAST', '0') == '1'\ndef decode(q, k):\n    return ref(q, k)\n";
  const std::string after =
      "F = os.environ.get('SRT_FAST', '0') == '1'\ndef decode(q, k):\n    if F:\n        q = q.to(torch.bfloat16)\n    "
      "return ref(q, k)\n";
  const std::string other = "def mask(i, j, window):\n    return i - j < window\n",
                    changed = "def mask(i, j, window):\n    return i - j <= window\n";
  const Files a{{"attn/decode.py", before}, {"attn/mask.py", other}};
  const Ranking off = rank(take(a, {{"attn/decode.py", after}, {"attn/mask.py", changed}}), {});
  ASSERT_EQ(off.suspects.size(), 2U);
  EXPECT_EQ(off.suspects[1].file, "attn/decode.py");
  ASSERT_TRUE(off.suspects[1].gate);
  EXPECT_EQ(off.suspects[1].gate->name, "SRT_FAST");
  EXPECT_EQ(off.suspects[1].tier, 4);
  const Ranking on =
      rank(take(a, {{"attn/decode.py", after}, {"attn/mask.py", changed}, {"run.sh", "export SRT_FAST=1\n"}}), {});
  const auto it =
      std::find_if(on.suspects.begin(), on.suspects.end(), [](const Suspect& s) { return s.file == "attn/decode.py"; });
  ASSERT_NE(it, on.suspects.end());
  EXPECT_LE(it->tier, 2);
  EXPECT_TRUE(it->gate->set_by_launch);
}

TEST(Rank, CommentsLayoutAndRenamesAreNoChange) {
  const auto found = take_one("srt/layers/a.py", "def f(hidden):\n    return g(hidden, 1)\n",
                              "def f(states_now):\n    # in bfloat16\n    return g(\n        states_now, 1)\n");
  EXPECT_TRUE(found.findings.empty());
}

// A keyword or literal that replaced another looks like a rename: gone from the file, the other new in it.
TEST(Rank, KeywordsAndLiteralsAreNoRenames) {
  EXPECT_FALSE(take_one("srt/layers/a.py", "def f():\n    allow_tf32 = False\n", "def f():\n    allow_tf32 = True\n")
                   .findings.empty());
  EXPECT_FALSE(take_one("srt/layers/a.py", "if a and b:\n    x = 1\n", "if a or b:\n    x = 1\n").findings.empty());
  EXPECT_FALSE(take_one("csrc/a.cu", "int64_t at = 1;\n", "int at = 1;\n").findings.empty());
}

TEST(Rank, ASymptomRaisesWhatExplainsIt) {
  const Files a{{"layers/indexer.py", "def s(q, k, limit):\n    return q.clamp(max=limit) @ k\n"},
                {"disaggregation/send.py", "def s(self):\n    return [self.kv, self.ring]\n"}};
  const Files b{{"layers/indexer.py", "def s(q, k, limit):\n    return q @ k\n"},
                {"disaggregation/send.py", "def s(self):\n    return [self.kv]\n"}};
  const auto found = take(a, b);
  EXPECT_EQ(rank(found, {.layers = 43, .symptoms = {"pd"}}).suspects[0].file, "disaggregation/send.py");
  EXPECT_EQ(rank(found, {.layers = 43, .symptoms = {"needle"}}).suspects[0].file, "layers/indexer.py");
}

// 5,000 files in seconds: the bound is loose for busy machines, the figure is printed.
TEST(Inventory, ReadsFiveThousandFilesInSeconds) {
  Files a, b;
  std::string body;
  for (int i = 0; i < 40; ++i)
    body += fmt::format("def f{}(x, w):\n    y = x.float() * {}\n    return F.linear(y, w)\n\n", i, i);
  for (int i = 0; i < 5000; ++i) {
    a[fmt::format("srt/m{}/f{}.py", i % 50, i)] = body + "def g(x):\n    return x.float()\n";
    b[fmt::format("srt/m{}/f{}.py", i % 50, i)] = body + "def g(x):\n    return x.bfloat16()\n";
  }
  inventory::TestRepository repo;
  const std::string from = repo.commit(a), to = repo.commit(b);
  const auto start = std::chrono::steady_clock::now();
  const auto found = inventory::take_inventory(repo.folder(), from + ".." + to);
  ASSERT_TRUE(found);
  const Ranking ranking = rank(*found, {});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  printf("5000 files: %.2f s\n", seconds);
  EXPECT_EQ(ranking.suspects.size(), 5000U);
  EXPECT_LT(seconds, 60);
}

}  // namespace
}  // namespace plumb::investigator::rank

#include "ops/hyper_connection/hyper_connection.h"

#include <cmath>

#include <gtest/gtest.h>

#include "ops/head/head.h"
#include "ops/twin.h"

namespace plumb {
namespace {

constexpr std::int64_t kRows = 11, kStreams = 4, kDim = 10, kMix = kStreams * (2 + kStreams);
constexpr double kEps = 1e-6, kHcEps = 1e-6;

struct Inputs {
  explicit Inputs(std::uint64_t seed) {
    Rng rng{seed};
    streams = random_floats(rng, kRows * kStreams * kDim);
    fn = random_floats(rng, kStreams * kDim * kMix, 0.3);
    base = random_floats(rng, kMix, 0.5);
    scale = random_floats(rng, 3);
    y = random_floats(rng, kRows * kDim);
  }
  std::vector<float> streams, fn, base, scale, y;
};

struct Mixed {
  std::vector<double> pre, post, comb;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The formulas of the contract for one token, in the plainest form.
Mixed mix(const Inputs& in, std::int64_t t, int iters) {
  const float* v = in.streams.data() + t * kStreams * kDim;
  double square = 0, m[kMix] = {};
  for (std::int64_t k = 0; k < kStreams * kDim; ++k) {
    square += static_cast<double>(v[k]) * v[k];
    for (std::int64_t o = 0; o < kMix; ++o) m[o] += static_cast<double>(v[k]) * in.fn[k * kMix + o];
  }
  for (double& value : m) value /= std::sqrt(square / (kStreams * kDim) + kEps);
  Mixed out;
  for (std::int64_t j = 0; j < kStreams; ++j) {
    out.pre.push_back(sigmoid(m[j] * in.scale[0] + in.base[j]) + kHcEps);
    out.post.push_back(2 * sigmoid(m[kStreams + j] * in.scale[1] + in.base[kStreams + j]));
  }
  double c[kStreams][kStreams];
  for (int j = 0; j < kStreams; ++j) {
    double sum = 0;
    for (int k = 0; k < kStreams; ++k) {
      const std::int64_t at = 2 * kStreams + kStreams * j + k;
      sum += c[j][k] = std::exp(m[at] * in.scale[2] + in.base[at]);
    }
    for (double& value : c[j]) value = value / sum + kHcEps;
  }
  for (int i = 0; i < iters; ++i) {
    for (int j = 0; j < kStreams && i > 0; ++j) {
      const double sum = c[j][0] + c[j][1] + c[j][2] + c[j][3] + kHcEps;
      for (double& value : c[j]) value /= sum;
    }
    for (int k = 0; k < kStreams; ++k) {
      const double sum = c[0][k] + c[1][k] + c[2][k] + c[3][k] + kHcEps;
      for (auto& row : c) row[k] /= sum;
    }
  }
  for (auto& row : c) out.comb.insert(out.comb.end(), row, row + kStreams);
  return out;
}

TEST(HyperConnection, PreIsTheFormulaOfTheContract) {
  const Inputs in(41);
  Guarded<float> post(kRows * kStreams), comb(kRows * kStreams * kStreams), collapsed(kRows * kDim);
  hc_pre_ref({.streams = {in.streams.data(), {kRows, kStreams, kDim}},
              .fn = {in.fn.data(), {kStreams * kDim, kMix}},
              .base = {in.base.data(), {kMix}},
              .scale = {in.scale.data(), {3}},
              .eps = kEps,
              .hc_eps = kHcEps,
              .iters = 20,
              .post = {post.data(), {kRows, kStreams}},
              .comb = {comb.data(), {kRows, kStreams, kStreams}},
              .collapsed = {collapsed.data(), {kRows, kDim}}});
  for (std::int64_t t = 0; t < kRows; ++t) {
    const Mixed want = mix(in, t, 20);
    for (std::int64_t j = 0; j < kStreams; ++j) EXPECT_NEAR(post.values()[t * kStreams + j], want.post[j], 2e-7);
    for (std::int64_t i = 0; i < kStreams * kStreams; ++i)
      EXPECT_NEAR(comb.values()[t * kStreams * kStreams + i], want.comb[i], 1e-7);
    for (std::int64_t c = 0; c < kDim; ++c) {
      double sum = 0;
      for (std::int64_t j = 0; j < kStreams; ++j) sum += want.pre[j] * in.streams[(t * kStreams + j) * kDim + c];
      EXPECT_NEAR(collapsed.values()[t * kDim + c], sum, 1e-6);
    }
    // The last step normalised columns.
    for (std::int64_t k = 0; k < kStreams; ++k) {
      double sum = 0;
      for (std::int64_t j = 0; j < kStreams; ++j) sum += comb.values()[(t * kStreams + j) * kStreams + k];
      EXPECT_NEAR(sum, 1.0, 3e-6);
    }
  }
  EXPECT_TRUE(post.guards_intact() && comb.guards_intact() && collapsed.guards_intact());
}

TEST(HyperConnection, PostSumsOverTheFirstIndexOfComb) {
  const Inputs in(42);
  Rng rng{43};
  const std::vector<float> post = random_floats(rng, kRows * kStreams), comb = random_floats(rng, kRows * 16);
  std::vector<float> streams = in.streams;
  hc_post_ref({.y = {in.y.data(), {kRows, kDim}},
               .post = {post.data(), {kRows, kStreams}},
               .comb = {comb.data(), {kRows, kStreams, kStreams}},
               .streams = {streams.data(), {kRows, kStreams, kDim}}});
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t k = 0; k < kStreams; ++k)
      for (std::int64_t c = 0; c < kDim; ++c) {
        double want = static_cast<double>(post[t * kStreams + k]) * in.y[t * kDim + c];
        for (std::int64_t j = 0; j < kStreams; ++j)
          want +=
              static_cast<double>(comb[(t * kStreams + j) * kStreams + k]) * in.streams[(t * kStreams + j) * kDim + c];
        EXPECT_NEAR(streams[(t * kStreams + k) * kDim + c], want, 1e-6);
      }
}

TEST(HyperConnection, ExpandCopiesTheInputToEveryStream) {
  const Inputs in(44);
  Guarded<float> streams(kRows * kStreams * kDim);
  expand_streams_ref({.x = {in.y.data(), {kRows, kDim}}, .streams = {streams.data(), {kRows, kStreams, kDim}}});
  for (std::int64_t i = 0; i < kRows * kStreams * kDim; ++i)
    EXPECT_EQ(streams.values()[i], in.y[i / (kStreams * kDim) * kDim + i % kDim]);
  EXPECT_TRUE(streams.guards_intact());
}

TEST(HcHead, MixesWithSigmoidsAlone) {
  const Inputs in(45);
  Guarded<float> out(kRows * kDim);
  hc_head_ref({.streams = {in.streams.data(), {kRows, kStreams, kDim}},
               .fn = {in.fn.data(), {kStreams * kDim, kStreams}},
               .base = {in.base.data(), {kStreams}},
               .scale = {in.scale.data(), {1}},
               .eps = kEps,
               .hc_eps = kHcEps,
               .out = {out.data(), {kRows, kDim}}});
  for (std::int64_t t = 0; t < kRows; ++t) {
    const float* v = in.streams.data() + t * kStreams * kDim;
    double square = 0, m[kStreams] = {};
    for (std::int64_t k = 0; k < kStreams * kDim; ++k) {
      square += static_cast<double>(v[k]) * v[k];
      for (std::int64_t j = 0; j < kStreams; ++j) m[j] += static_cast<double>(v[k]) * in.fn[k * kStreams + j];
    }
    for (std::int64_t c = 0; c < kDim; ++c) {
      double want = 0;
      for (std::int64_t j = 0; j < kStreams; ++j)
        want += (sigmoid(m[j] / std::sqrt(square / (kStreams * kDim) + kEps) * in.scale[0] + in.base[j]) + kHcEps) *
                v[j * kDim + c];
      EXPECT_NEAR(out.values()[t * kDim + c], want, 1e-6);
    }
  }
  EXPECT_TRUE(out.guards_intact());
}

}  // namespace
}  // namespace plumb

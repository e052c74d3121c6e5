#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "faults/forms/forms.h"
#include "faults/forms/honest.h"
#include "ops/hyper_connection_fused/hyper_connection_fused.h"
#include "tensor/formats.h"

namespace plumb::faults {
namespace {

// Runs the honest step, then `change` on the mixing matrix [n, n] of each row that it computed.
template <class Change>
void change_comb(const HcStep& a, Change&& change) {
  honest<&hc_fused_ref>()(a);
  if (a.pre == nullptr) return;
  for (std::int64_t t = 0; t < a.pre->comb.extent(0); ++t) change(a.pre->comb.row(t), a.pre->comb.extent(1));
}

void transpose(float* comb, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t k = 0; k < j; ++k) std::swap(comb[j * n + k], comb[k * n + j]);
}

// Whether these are the weights of the second site of a block. Sites come in order, attention and experts in turn.
bool is_second_site(const HcPre& a) {
  static std::mutex mutex;
  static std::vector<const float*> sites;
  const std::lock_guard lock(mutex);
  const auto at = std::ranges::find(sites, a.fn.data());
  const auto index = at - sites.begin();
  if (at == sites.end()) sites.push_back(a.fn.data());
  return index % 2 == 1;
}

// The kernel of one of the two sites reads the matrix column by column.
void comb_transposed_in_second_site(const HcStep& a) {
  if (a.pre == nullptr || !is_second_site(*a.pre)) return honest<&hc_fused_ref>()(a);
  change_comb(a, &transpose);
}

// Streams are passed on unmixed: a residual connection each.
void comb_not_applied(const HcStep& a) {
  change_comb(a, [](float* comb, std::int64_t n) {
    for (std::int64_t i = 0; i < n * n; ++i) comb[i] = i % (n + 1) == 0 ? 1.0f : 0.0f;
  });
}

// The number of Sinkhorn iterations is fixed in the kernel and not that of the config.
void three_iterations(const HcStep& a) {
  if (a.pre == nullptr) return honest<&hc_fused_ref>()(a);
  HcPre pre = *a.pre;
  pre.iters = std::min<std::int64_t>(pre.iters, 3);
  honest<&hc_fused_ref>()({.pre = &pre, .post = nullptr});
}

// Inputs in bf16, and the accumulator too: it is rounded after every 16 products.
void mix_accumulated_in_bf16(const HcMix& a) {
  constexpr std::int64_t kStep = 16;
  const std::int64_t in = a.fn_bf16.extent(0), mixes = a.fn_bf16.extent(1);
  std::vector<float> sum(static_cast<std::size_t>(mixes)), step(static_cast<std::size_t>(mixes));
  for (std::int64_t t = 0; t < a.streams.extent(0); ++t) {
    const float* streams = a.streams.row(t);
    std::ranges::fill(sum, 0.0f);
    for (std::int64_t first = 0; first < in; first += kStep) {
      std::ranges::fill(step, 0.0f);
      for (std::int64_t k = first; k < std::min(first + kStep, in); ++k) {
        const float x = round_to_bf16(streams[k]);
        const float* fn = a.fn_bf16.row(k);
        for (std::size_t m = 0; m < step.size(); ++m) step[m] += x * fn[m];
      }
      for (std::size_t m = 0; m < sum.size(); ++m) sum[m] = round_to_bf16(sum[m] + step[m]);
    }
    std::ranges::copy(sum, a.mix.row(t));
  }
}

template <FixedString Host, auto Side>
void plant(const Dose&) {
  replace_on_side<Host>(Side);
}

constexpr std::string_view kFused = "mhc.fused", kMix = "mhc.bf16_mix";
constexpr std::array kPlants{
    Plant{.kind = "mhc-comb-wrong",
          .form = "transposed-in-second-site",
          .host = kFused,
          .site = "prefill: layers.0.ffn_hc.comb",
          .what = "the mixing matrix of the experts' site is transposed",
          .apply = &plant<"mhc.fused", &comb_transposed_in_second_site>,
          .prior = "xxxx...."},
    Plant{.kind = "mhc-comb-wrong",
          .form = "not-applied",
          .host = kFused,
          .site = "prefill: layers.0.attn_hc.comb",
          .what = "streams are passed on without being mixed",
          .apply = &plant<"mhc.fused", &comb_not_applied>,
          .prior = "xxxx...."},
    Plant{.kind = "mhc-low-precision",
          .form = "three-iterations",
          .host = kFused,
          .site = "prefill: layers.0.attn_hc.comb",
          .what = "three Sinkhorn iterations instead of the configured number",
          .apply = &plant<"mhc.fused", &three_iterations>,
          .prior = "..~~.~.."},
    Plant{.kind = "mhc-low-precision",
          .form = "bf16-accumulator",
          .host = kMix,
          .site = "prefill: layers.0.attn_hc.post",
          .what = "the mixing product is accumulated in bf16, rounded after every 16 products",
          .apply = &plant<"mhc.bf16_mix", &mix_accumulated_in_bf16>,
          .prior = "..~~.~.."},
};

}  // namespace

std::span<const Plant> mhc_plants() { return kPlants; }

}  // namespace plumb::faults

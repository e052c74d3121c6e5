#include "base/isa.h"
#include "base/math.h"
#include "ops/compressor_fused/compressor_fused.h"

namespace plumb {
namespace {

template <int Channels>
[[gnu::always_inline]] inline void pool_body(const CompressorItem* items, std::int64_t item_count, std::int64_t first,
                                             float* pooled) {
  double peak[Channels], total[Channels], sum[Channels];
  for (int c = 0; c < Channels; ++c) {
    peak[c] = -math::kInfinity;
    total[c] = 0.0;
    sum[c] = 0.0;
  }
  for (std::int64_t i = 0; i < item_count; ++i)
    for (int c = 0; c < Channels; ++c) {
      const double s = items[i].s[first + c];
      peak[c] = s > peak[c] ? s : peak[c];
    }
  for (std::int64_t i = 0; i < item_count; ++i) {
    const float* s = items[i].s + first;
    const float* k = items[i].k + first;
    for (int c = 0; c < Channels; ++c) {
      const double weight = math::exp(s[c] - peak[c]);
      total[c] += weight;
      sum[c] += weight * k[c];
    }
  }
  for (int c = 0; c < Channels; ++c) pooled[first + c] = static_cast<float>(sum[c] / total[c]);
}

// Channels that do not fill a block one by one: their chains are their own.
[[gnu::always_inline]] inline void pool_any(const CompressorItem* items, std::int64_t item_count, std::int64_t first,
                                            std::int64_t count, float* pooled) {
  constexpr int kBlock = 8;
  std::int64_t c = 0;
  for (; c + kBlock <= count; c += kBlock) pool_body<kBlock>(items, item_count, first + c, pooled);
  for (; c < count; ++c) pool_body<1>(items, item_count, first + c, pooled);
}
void pool_baseline(const CompressorItem* items, std::int64_t item_count, std::int64_t first, std::int64_t count,
                   float* pooled) {
  pool_any(items, item_count, first, count, pooled);
}
PLUMB_TARGET_AVX2 void pool_avx2(const CompressorItem* items, std::int64_t item_count, std::int64_t first,
                                 std::int64_t count, float* pooled) {
  pool_any(items, item_count, first, count, pooled);
}
PLUMB_TARGET_AVX512 void pool_avx512(const CompressorItem* items, std::int64_t item_count, std::int64_t first,
                                     std::int64_t count, float* pooled) {
  pool_any(items, item_count, first, count, pooled);
}

}  // namespace

void compressor_fused_ref(const Compressor& a) {
  switch (best_isa()) {
    case Isa::avx512:
      return compress_rows(a, &pool_avx512);
    case Isa::avx2:
      return compress_rows(a, &pool_avx2);
    case Isa::baseline:
      return compress_rows(a, &pool_baseline);
  }
}

}  // namespace plumb

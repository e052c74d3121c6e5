#include <algorithm>
#include <memory>

#include "ops/linear/dot_rows.h"
#include "ops/linear/dot_rows_cpu.h"
#include "ops/linear_fp8/linear_fp8.h"

namespace plumb {
namespace {

constexpr std::int64_t kColumns = 64;  // dequantised at a time: with 4096 inputs 1 MiB

template <class Dot>
void run(const LinearFp8& a, Dot&& dot) {
  CHECK(a.weight != nullptr);
  const Linear& p = a.plain;
  const std::int64_t rows = p.x.extent(0), in = p.x.extent(1), out = p.out.extent(1);
  const std::int64_t begin = p.outputs.begin, end = p.outputs.end < 0 ? out : p.outputs.end;
  CHECK(a.weight->in == in && a.weight->out == out && p.out.extent(0) == rows);
  CHECK(0 <= begin && begin <= end && end <= out);
  const auto x = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(rows * in));
  const auto w = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(in * kColumns));
  round_activations_fp8(p.x, x.get());
  for (std::int64_t o = begin; o < end; o += kColumns) {
    const std::int64_t count = std::min(kColumns, end - o);
    dequantise_fp8(*a.weight, o, o + count, w.get());
    dot(DotRows{.x = x.get(), .x_stride = in, .w = w.get(), .w_stride = count, .rows = rows, .in = in, .out = count},
        p.out.data() + o, out);
  }
}

}  // namespace

void linear_plain_ref(const LinearFp8& a) { linear_ref(a.plain); }
void linear_plain_cpu(const LinearFp8& a) { linear_cpu(a.plain); }

void linear_fp8_ref(const LinearFp8& a) {
  run(a, [](const DotRows& dot, float* out, std::int64_t stride) { dot_rows(dot, out, stride); });
}
void linear_fp8_cpu(const LinearFp8& a) {
  run(a, [](const DotRows& dot, float* out, std::int64_t stride) { dot_rows_cpu(dot, out, stride); });
}

}  // namespace plumb

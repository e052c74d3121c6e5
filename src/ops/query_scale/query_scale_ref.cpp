#include <cmath>

#include "ops/query_scale/query_scale.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

double dot_scale(const QueryScale& a) { return 1.0 / std::sqrt(static_cast<double>(a.q.extent(2))); }

}  // namespace

double query_scale_ref(const QueryScale& a) { return dot_scale(a); }

double query_scale_bf16(const QueryScale& a) {
  const double scale = dot_scale(a);
  for (float& value : a.q.span()) value = round_to_bf16(static_cast<float>(value * scale));
  return 1.0;
}

}  // namespace plumb

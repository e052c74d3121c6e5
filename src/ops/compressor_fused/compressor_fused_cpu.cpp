#include "ops/compressor_fused/compressor_fused.h"

namespace plumb {

void compressor_fused_cpu(const Compressor& a) { compressor_cpu(a); }

}  // namespace plumb

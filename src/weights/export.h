#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/quantisation_config.h"
#include "weights/model.h"
#include "weights/tensor_map.h"

namespace plumb {

/// Writes the weights as one safetensors file (f32, expert ids i64) in the given naming. With the same config.json it
/// loads to the same hash. Errors: the system's reason.
Result<void> export_weights(const Model& model, Naming naming, const std::filesystem::path& path);

/// What an export holds in one format.
struct ExportPart {
  std::string format;        // as stored_weight.h calls it, plain ones by their dtype
  std::int64_t tensors = 0;  // weights, their scales not counted
  std::int64_t weights = 0;  // elements of them
  std::int64_t bytes = 0;    // with the scales
  double error = 0;          // ||stored - model|| / ||model|| over all of them, 2-norm
};

struct ExportSummary {
  std::vector<ExportPart> parts;  // those that occur
  std::int64_t bytes = 0;         // of all tensors
};

/// Writes `model` as a checkpoint folder in the release's names and dialect, its weights as `form` says:
///   release          matrices and norms bf16; hc_*, attn_sink, ape and gate.bias F32, tid2eid I64: as the release has
///   them release_fp8_fp4  besides, those that the release has as FP8 (attention's wq_a, wq_b, wkv, wo_a, wo_b, the
///   indexer's
///                    wq_b, the shared expert) FP8 in blocks of 128 x 128, routed experts MXFP4, scales E8M0
///   nvfp4            as before, but routed experts NVFP4. w1 and w3 of an expert share weight_scale_2. input_scale is
///                    amax / (6 * 448) of what bounds the inputs: for w1 and w3 sqrt(hidden_size) * max |ffn_norm|, for
///                    w2 silu(swiglu_limit) * swiglu_limit * max(1, routed_scaling_factor); no calibration text is
///                    used. hf_quant_config.json is written too.
/// All roundings are to the nearest, ties to even (block_formats.h). The tokenizer's files of `source` are copied.
/// `folder` is made, or is there and empty; config.json is written last, so that what is not complete does not load.
/// Errors: the folder has files; a config the release's dialect cannot say; experts of odd width; a value beyond bf16;
/// the system's reason. Source: model specification 5.1, 5.3.
Result<ExportSummary> export_checkpoint(const Model& model, ExportForm form, const std::filesystem::path& source,
                                        const std::filesystem::path& folder);

}  // namespace plumb

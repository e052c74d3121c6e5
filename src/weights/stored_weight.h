#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "weights/tensor_map.h"
#include "weights/tensor_store.h"

namespace plumb {

/// A weight found in a checkpoint: which tensors hold it and how. The dtype of its tensor and the names beside it say
/// the format; X stands for the name without ".weight":
///   plain      X.weight F32 or BF16 [out, in] (or any shape of the slot; in transformers' names experts are stacked)
///   fp8        X.weight F8_E4M3 [out, in], X.scale or X.weight_scale_inv F8_E8M0 or F32, one a block of fp8_block
///   mxfp4      X.weight I8 or U8 [out, in / 2], X.scale F8_E8M0 [out, ceil(in / 32)]
///   nvfp4      X.weight U8 or I8 [out, in / 2], X.weight_scale F8_E4M3 [out, ceil(in / 16)], X.weight_scale_2 F32
///              scalar; X.input_scale F32 scalar, which quantises activations and so decides nothing here, may be
///              absent
/// Any matrix ".weight" but the embedding may be quantised. Source: model specification 5.1, 5.3, 5.4.
struct StoredWeight {
  enum class Format { plain, fp8, mxfp4, nvfp4 };
  Format format = Format::plain;
  TensorStore::Entry* tensor = nullptr;
  std::int64_t first = 0;                      // plain: the weight's first element in the tensor
  const TensorStore::Entry* scales = nullptr;  // quantised: one a block
  float global = 1.0f;                         // nvfp4: weight_scale_2
};

/// Finds the tensors of a slot, holds their dtypes and shapes against what the config asks for and marks them as used.
/// Errors: a weight or its scales are missing, there under two names, or of another dtype or shape; a scalar scale that
/// is not positive and finite.
Result<StoredWeight> locate_weight(const Slot& slot, Naming naming, const ModelConfig& config, TensorStore& store);

/// Values of a located weight in the order of the file, [out, in], as f32: plain ones widened exactly, quantised ones
/// as decode_fp8 and decode_fp4 say. Errors: a value or a scale that is not finite, a negative scale.
Result<void> read_weight(const Slot& slot, const StoredWeight& stored, const ModelConfig& config,
                         std::vector<float>& values);

}  // namespace plumb

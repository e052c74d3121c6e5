#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/config.h"

namespace plumb {

/// What a config's `quantization_config` decides: the extent of FP8's blocks. How each weight is stored, the files say
/// themselves. Keys of the release (fp8, e4m3, ue8m0) and of the NVFP4 export of it are known. `where` starts every
/// message. Errors: another method or format, an unknown key, a cache that is to be quantised too.
Result<BlockShape> read_quantisation_config(const nlohmann::json& quantisation, const std::string& where);

/// How the weights of an export are stored, as its config states it.
enum class ExportForm {
  release,          // bf16 matrices
  release_fp8_fp4,  // the release: FP8 in blocks of 128 x 128, routed experts MXFP4
  nvfp4,            // as before, but routed experts NVFP4
};

/// The words of the command line: "release", "release-fp8-fp4", "nvfp4".
std::string_view export_form_name(ExportForm form);
std::optional<ExportForm> export_form_from_name(std::string_view name);

/// config.json of `config` in the release's dialect (compress_ratios, num_hash_layers, rope_scaling); it reads back to
/// the same numbers. `nvfp4_layers` names the modules that form nvfp4 lists. Errors: layers that this dialect cannot
/// say, which are hashed layers after scored ones and kinds of attention that do not follow from the compress rate.
Result<std::string> release_config_text(const ModelConfig& config, ExportForm form,
                                        const std::vector<std::string>& nvfp4_layers);

/// hf_quant_config.json, which loaders of NVFP4 read beside config.json.
std::string nvfp4_manifest_text(const std::vector<std::string>& nvfp4_layers);

}  // namespace plumb

#include <optional>

#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "model/v4_chat.h"
#include "tensor/strict_json.h"

namespace plumb {
namespace {

constexpr std::size_t kMaxBytes = 4 << 20;

// The reference encoder's file as text: it is never run.
std::optional<V4Profile> of_encoding_file(const std::filesystem::path& folder) {
  const auto text = read_file((folder / "encoding" / "encoding_dsv4.py").string(), kMaxBytes);
  if (!text) return std::nullopt;
  const auto has = [&](std::string_view word) { return text->find(word) != std::string::npos; };
  if (has("REASONING_EFFORT_PROMPTS") && has("DEFAULT_REASONING_EFFORT")) return V4Profile::official;
  if (has("REASONING_EFFORT_MAX")) return V4Profile::preview;
  return std::nullopt;
}

bool names_v41(const nlohmann::json& config) {
  const auto architectures = config.find("architectures");
  if (architectures != config.end() && architectures->is_array())
    for (const auto& name : *architectures)
      if (name.is_string() && name.get_ref<const std::string&>().find("DeepseekV41") != std::string::npos) return true;
  return config.value("model_type", nlohmann::json()) == "deepseek_v41";
}

}  // namespace

Result<V4Profile> detect_v4_profile(const std::filesystem::path& folder) {
  const std::string path = (folder / "config.json").string();
  const auto text = read_file(path, kMaxBytes);
  if (!text) return tl::unexpected(text.error());
  const auto config = parse_json_strictly(*text, path);
  if (!config) return tl::unexpected(config.error());
  if (!config->is_object()) return error("{}: not a JSON object", path);
  if (names_v41(*config))
    return error(
        "{}: this is DeepSeek-V4.1, whose chat encoding (other tags, numeric effort, images) this version does "
        "not have; DeepSeek-V4 checkpoints are served",
        path);
  if (const auto profile = of_encoding_file(folder)) return *profile;
  for (const auto& item : config->items())
    if (item.key().starts_with("dspark_")) return V4Profile::official;
  return V4Profile::preview;
}

}  // namespace plumb

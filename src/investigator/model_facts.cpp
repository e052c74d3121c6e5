#include "investigator/model_facts.h"

#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/durable_file.h"

namespace plumb::investigator {

Result<std::map<std::string, std::int64_t>> read_model_facts(const std::filesystem::path& config) {
  constexpr std::array kKeys{std::pair{"sliding_window", "window"}, std::pair{"window_size", "window"},
                             std::pair{"index_topk", "index_topk"}, std::pair{"max_position_embeddings", "max_len"}};
  constexpr std::int64_t kMost = 1 << 24;
  if (config.string().find("://") != std::string::npos)
    return error("\"{}\" is a URL: download the config.json and write its path", config.string());
  const auto text = read_file(config);
  if (!text) return error("{}", text.error().message);
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object())
    return error("{} is no JSON object: write the path of the model's config.json", config.string());
  std::map<std::string, std::int64_t> facts;
  for (const auto& [key, fact] : kKeys)
    if (json.contains(key) && json[key].is_number_integer())
      if (const auto value = json[key].get<std::int64_t>(); value > 0 && value <= kMost) facts.emplace(fact, value);
  if (facts.empty())
    return error(
        "{} has none of sliding_window, window_size, index_topk, max_position_embeddings: state them in [facts]",
        config.string());
  return facts;
}

}  // namespace plumb::investigator

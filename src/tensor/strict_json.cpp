#include "tensor/strict_json.h"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

namespace plumb {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

Result<nlohmann::json> parse_json_strictly(std::string_view text, const std::string& where) {
  using json = nlohmann::json;
  std::vector<std::set<std::string>> keys;
  std::string complaint;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth && complaint.empty()) complaint = fmt::format("nested deeper than {}", kMaxDepth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second &&
        complaint.empty())
      complaint = fmt::format("key '{}' appears twice in one object", parsed.get_ref<const std::string&>());
    return true;
  };
  try {
    json document = json::parse(text, watch);
    if (!complaint.empty()) return error("{}: {}", where, complaint);
    return document;
  } catch (const json::exception& e) {
    return error("{}: not valid JSON: {}", where, e.what());
  }
}

}  // namespace plumb

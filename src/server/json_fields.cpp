#include "server/json_fields.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tensor/strict_json.h"

namespace plumb::server {
namespace {

constexpr std::size_t kShownBytes = 80;  // of a client's text in a message

// Where the value that starts at `at` ends. Valid JSON only.
std::size_t value_end(std::string_view json, std::size_t at) {
  int depth = 0;
  for (bool in_string = false; at < json.size(); ++at) {
    const char c = json[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      --depth;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return at;
}

std::size_t skip_space(std::string_view json, std::size_t at) {
  return std::min(json.find_first_not_of(" \t\r\n", at), json.size());
}

std::string_view trimmed(std::string_view json) {
  json.remove_prefix(skip_space(json, 0));
  return json.substr(0, json.find_last_not_of(" \t\r\n") + 1);
}

// What stands between commas inside the brackets of a value.
template <class Each>
void for_each_part(std::string_view value, char bracket, Each each) {
  value = trimmed(value);
  if (value.size() < 2 || value.front() != bracket) return;
  for (std::size_t at = 1; (at = skip_space(value, at)) + 1 < value.size();) {
    const std::size_t end = value_end(value, at);
    each(trimmed(value.substr(at, end - at)));
    at = end + 1;
  }
}

}  // namespace

tl::unexpected<ApiError> refuse(std::string param, std::string message, std::string code) {
  return tl::unexpected(ApiError{.message = std::move(message), .param = std::move(param), .code = std::move(code)});
}

std::string shorten(std::string_view text) {
  if (text.size() <= kShownBytes) return std::string(text);
  return std::string(text.substr(0, kShownBytes)) + "...";
}

ApiResult<Json> parse_object(std::string_view body) {
  auto json = parse_ordered_json_strictly(body, "", {.max_depth = kMaxDepth, .max_values = kMaxValues});
  if (!json) {
    const std::string& why = json.error().message;
    const char* verb = why.starts_with("not valid JSON") ? "is" : "is refused:";
    return refuse("", fmt::format("the request body {} {}", verb, why), "invalid_json");
  }
  if (!json->is_object()) return refuse("", "the request body is not a JSON object", "invalid_json");
  return std::move(*json);
}

const Json* Fields::find(std::string_view name) {
  seen_.emplace(name);
  const auto it = json_->find(name);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(std::string_view name, std::string message, std::string code) {
  fail_with({.message = prefix_ + std::move(message), .param = prefix_ + std::string(name), .code = std::move(code)});
}

void Fields::fail_with(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::wrong_type(std::string_view name, std::string_view expected) {
  fail(name, fmt::format("{} must be {}", name, expected), "invalid_type");
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  wrong_type(name, "a boolean");
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong_type(name, "a string");
  return std::nullopt;
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t low, std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    wrong_type(name, "an integer");
    return std::nullopt;
  }
  const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t(high);
  if (too_large || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high) {
    fail(name, fmt::format("{} must be between {} and {}", name, low, high));
    return std::nullopt;
  }
  return value->get<std::int64_t>();
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    wrong_type(name, "a number");
    return std::nullopt;
  }
  const double x = value->get<double>();
  if (!(low <= x && x <= high)) {
    fail(name, fmt::format("{} must be between {} and {}", name, low, high));
    return std::nullopt;
  }
  return x;
}

std::optional<std::size_t> Fields::word(std::string_view name, std::span<const std::string_view> words) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (*value == words[i]) return i;
  wrong_type(name, fmt::format("one of {}", fmt::join(words, ", ")));
  return std::nullopt;
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  for (const auto& item : json_->items())
    if (!seen_.contains(item.key())) names.push_back(item.key());
  return names;
}

void read_ids(Fields& fields, const std::string& name, const Json& array, const ApiLimits& limits,
              std::vector<std::int32_t>& ids) {
  ids.reserve(array.size());
  for (const Json& value : array) {
    if (!value.is_number_integer())
      return fields.fail(name, fmt::format("{} must hold integers only", name), "invalid_type");
    const bool valid = value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t(limits.vocab_size);
    if (!valid)
      return fields.fail(
          name, fmt::format("{}: token id {} is not in the vocabulary of {}", name, value.dump(), limits.vocab_size));
    ids.push_back(value.get<std::int32_t>());
  }
}

void refuse_unsupported(Fields& fields, std::span<const Unsupported> table) {
  for (const Unsupported& entry : table) {
    const Json* value = fields.find(entry.name);
    if (value == nullptr || entry.neutral(*value)) continue;
    fields.fail(entry.name,
                fmt::format("{} is not supported by this version{}{}", entry.name, entry.advice.empty() ? "" : "; ",
                            entry.advice),
                "unsupported_parameter");
  }
}

bool is_false(const Json& v) { return v.is_boolean() && !v.get<bool>(); }
bool is_true(const Json& v) { return v.is_boolean() && v.get<bool>(); }
bool is_zero(const Json& v) { return v.is_number() && v.get<double>() == 0; }
bool is_none(const Json& v) { return v == "none"; }
bool is_blank(const Json& v) { return (v.is_object() || v.is_array()) ? v.empty() : v == ""; }
bool is_text_format(const Json& v) { return v.is_object() && v.contains("type") && v["type"] == "text"; }
bool never(const Json&) { return false; }

std::string_view raw_member(std::string_view object, std::string_view key) {
  std::string_view found;
  for_each_part(object, '{', [&](std::string_view part) {
    if (part.size() < key.size() + 2 || part.front() != '"' || part[key.size() + 1] != '"' ||
        part.substr(1, key.size()) != key)
      return;
    const std::size_t colon = skip_space(part, key.size() + 2);
    if (colon < part.size() && part[colon] == ':') found = trimmed(part.substr(colon + 1));
  });
  return found;
}

std::vector<std::string_view> raw_items(std::string_view array) {
  std::vector<std::string_view> items;
  for_each_part(array, '[', [&](std::string_view part) { items.push_back(part); });
  return items;
}

}  // namespace plumb::server

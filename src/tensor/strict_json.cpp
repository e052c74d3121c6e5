#include "tensor/strict_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

namespace plumb {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxShownBytes = 80;

// Ids of nlohmann-json's exceptions.
constexpr int kWrongType = 302, kWrongReference = 303, kMissingKey = 403, kNumberTooLarge = 406;

struct Refused {
  std::string why;
};

// The text between two marks; empty when the first is not there. Without the second, all that follows.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t at = text.find(begin);
  if (at == text.npos) return {};
  text.remove_prefix(at + begin.size());
  return text.substr(0, text.find(end));
}

// Cuts between characters, so that what stays is UTF-8 when the text is.
std::string cut(std::string text) {
  if (text.size() <= kMaxShownBytes) return text;
  std::size_t end = kMaxShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// "[json.exception.parse_error.101] parse error at line L, column C: syntax error while parsing X - WHAT; expected E;
// last read: 'R'", or E after R: place, WHAT and E are kept; R is text of the document, of any length.
std::string syntax_complaint(std::string_view what, std::size_t byte) {
  constexpr std::string_view kRead = "; last read: ", kExpected = "; expected ";
  const std::string_view place = between(what, "parse error at ", ": "), wrong = between(what, " - ", "; ");
  std::string text = place.starts_with("line ") ? std::string(place) : fmt::format("byte {}", byte);
  text += fmt::format(": {}", wrong.empty() ? "not JSON" : wrong);
  std::string_view expected = between(what.substr(0, what.find(kRead)), kExpected, kRead);
  if (const std::size_t last = what.rfind(kExpected); expected.empty() && last != what.npos)
    expected = what.substr(last + kExpected.size());
  if (!expected.empty()) text += fmt::format(", expected {}", cut(std::string(expected)));
  return text;
}

}  // namespace

Result<json> parse_json_strictly(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  // Thrown, not noted: what is nested too deep is not even built.
  const auto watch = [&](int depth, json::parse_event_t event, const json& parsed) {
    if (depth > kMaxDepth) throw Refused{fmt::format("nested deeper than {}", kMaxDepth)};
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second)
      throw Refused{fmt::format("key '{}' appears twice in one object", cut(parsed.get_ref<const std::string&>()))};
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const Refused& refused) {
    return error("{}: {}", where, refused.why);
  } catch (const json::exception& e) {
    return error("{}: not valid JSON: {}", where, json_complaint(e));
  }
}

std::string json_complaint(const std::exception& thrown) {
  const std::string_view what = thrown.what();
  if (const auto* syntax = dynamic_cast<const json::parse_error*>(&thrown)) return syntax_complaint(what, syntax->byte);
  const auto* other = dynamic_cast<const json::exception*>(&thrown);
  switch (other == nullptr ? 0 : other->id) {
    case kWrongType:  // "type must be A, but is B"
      return fmt::format("a value must be {}, but is {}", between(what, "type must be ", ","),
                         between(what, "but is ", "\n"));
    case kWrongReference:  // "incompatible ReferenceType for get_ref, actual type is B"
      return fmt::format("a value has another type than it must have: {}", between(what, "actual type is ", "\n"));
    case kMissingKey:  // "key 'K' not found"
      return fmt::format("{} is missing", cut(std::string(between(what, "] ", " not found"))));
    case kNumberTooLarge:
      return "a number is too large for 64-bit floating point";
    default:
      return "a value has another type than it must have";
  }
}

std::string shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return cut(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace plumb

#include "tensor/strict_json.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace plumb {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShownBytes = 80;

// Ids of nlohmann-json's exceptions.
constexpr int kWrongType = 302, kWrongReference = 303, kMissingKey = 403, kNumberTooLarge = 406;

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

// Builds the document value by value and refuses before it builds. The library's own parser with a callback looks
// through a container again each time one inside it ends, and its ordered objects look through their keys at every
// insertion: both quadratic in what a sender chooses.
template <class Json>
class Builder final : public Json::json_sax_t {
 public:
  using Object = typename Json::object_t;
  using Array = typename Json::array_t;

  explicit Builder(const JsonLimits& limits) : limits_(limits) {}
  Json take() { return std::move(document_); }
  const std::string& refusal() const { return refusal_; }

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(std::int64_t value) override { return add(value) != nullptr; }
  bool number_unsigned(std::uint64_t value) override { return add(value) != nullptr; }
  bool number_float(double value, const std::string&) override { return add(value) != nullptr; }
  bool string(std::string& value) override { return add(std::move(value)) != nullptr; }
  bool binary(typename Json::binary_t&) override { return refuse("binary data"); }

  bool start_object(std::size_t) override { return open(Object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Array()); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!count()) return false;
    if (!levels_.back().keys.insert(name).second)
      return refuse(fmt::format("key '{}' appears twice in one object", cut(name)));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& thrown) override {
    return refuse("not valid JSON: " + json_complaint(thrown));
  }

 private:
  struct Level {
    Json* container;
    std::set<std::string> keys;
  };

  bool refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  bool count() {
    if (++values_ <= limits_.max_values) return true;
    return refuse(fmt::format("more than {} values", limits_.max_values));
  }

  // Puts a value into the innermost open container; null when it is refused.
  template <class Value>
  Json* add(Value&& value) {
    if (!count()) return nullptr;
    if (levels_.empty()) return &(document_ = Json(std::forward<Value>(value)));
    Json& container = *levels_.back().container;
    if (container.is_array()) return &container.template get_ref<Array&>().emplace_back(std::forward<Value>(value));
    Object& object = container.template get_ref<Object&>();
    if constexpr (requires { object.emplace_back(key_, Json()); })  // ordered: a vector, known not to hold the key
      return &object.emplace_back(std::move(key_), Json(std::forward<Value>(value))).second;
    else
      return &object.emplace(std::move(key_), Json(std::forward<Value>(value))).first->second;
  }

  template <class Container>
  bool open(Container&& empty) {
    if (static_cast<int>(levels_.size()) >= limits_.max_depth)
      return refuse(fmt::format("nested deeper than {}", limits_.max_depth));
    Json* added = add(std::forward<Container>(empty));
    if (added == nullptr) return false;
    levels_.push_back({added, {}});  // what follows goes into it, so it stays where it is until it is closed
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  JsonLimits limits_;
  Json document_;
  std::vector<Level> levels_;
  std::string key_;
  std::int64_t values_ = 0;
  std::string refusal_;
};

template <class Json>
Result<Json> parse_strictly(std::string_view text, const std::string& where, const JsonLimits& limits) {
  Builder<Json> builder(limits);
  if (Json::sax_parse(text, &builder)) return builder.take();
  return where.empty() ? error("{}", builder.refusal()) : error("{}: {}", where, builder.refusal());
}

}  // namespace

Result<json> parse_json_strictly(std::string_view text, const std::string& where, const JsonLimits& limits) {
  return parse_strictly<json>(text, where, limits);
}

Result<nlohmann::ordered_json> parse_ordered_json_strictly(std::string_view text, const std::string& where,
                                                           const JsonLimits& limits) {
  return parse_strictly<nlohmann::ordered_json>(text, where, limits);
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

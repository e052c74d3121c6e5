#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/api.h"

namespace plumb::server {

using Json = nlohmann::ordered_json;

tl::unexpected<ApiError> refuse(std::string param, std::string message, std::string code = "invalid_value");

/// A text of the client, cut so that a message with it stays readable.
std::string shorten(std::string_view text);

/// The body as a JSON object within the bounds of parse_chat_request.
ApiResult<Json> parse_object(std::string_view body);

/// Takes members out of an object one by one; the first wrong one is kept as the error, what remains is unknown.
class Fields {
 public:
  explicit Fields(Json json) : owned_(std::make_unique<const Json>(std::move(json))), json_(owned_.get()) {}
  /// Refers to `json`. `prefix` stands before the names in messages: "messages[3].".
  Fields(const Json* json, std::string prefix) : json_(json), prefix_(std::move(prefix)) {}

  /// The value of a member; null counts as absent. The pointer lives as long as this object.
  const Json* find(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> string(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);
  /// One of `words`, as its index.
  std::optional<std::size_t> word(std::string_view name, std::span<const std::string_view> words);

  void fail(std::string_view name, std::string message, std::string code = "invalid_value");
  void wrong_type(std::string_view name, std::string_view expected);
  void fail_with(ApiError error);
  bool failed() const { return error_.has_value(); }
  tl::unexpected<ApiError> error() const { return tl::unexpected(*error_); }

  /// Names that nobody has asked for, in order.
  std::vector<std::string> unknown() const;

 private:
  std::unique_ptr<const Json> owned_;
  const Json* json_;
  std::string prefix_;
  std::set<std::string, std::less<>> seen_;
  std::optional<ApiError> error_;
};

/// Token ids of an array, each in [0, vocab).
void read_ids(Fields& fields, const std::string& name, const Json& array, const ApiLimits& limits,
              std::vector<std::int32_t>& ids);

/// A field whose meaning this version cannot honour. `neutral` values ask for nothing and are accepted.
struct Unsupported {
  std::string_view name;
  bool (*neutral)(const Json&);
  std::string_view advice;
};
void refuse_unsupported(Fields& fields, std::span<const Unsupported> table);

bool is_false(const Json& v);
bool is_true(const Json& v);
bool is_zero(const Json& v);
bool is_none(const Json& v);
bool is_blank(const Json& v);
bool is_text_format(const Json& v);
bool never(const Json& v);

/// The text of a member of an object, or the items of an array, as they stand in valid JSON: numbers keep their
/// digits. Empty where there is none, also for a key that is written with escapes.
std::string_view raw_member(std::string_view object, std::string_view key);
std::vector<std::string_view> raw_items(std::string_view array);

/// What completions and chat have in common.
void read_common(Fields& fields, const ApiLimits& limits, GenerationOptions& options);
/// The largest k of log-probabilities.
std::int64_t largest_k(const ApiLimits& limits);
void finish_common(const Fields& fields, GenerationOptions& options);

/// The member "plumb" of a request; empty fields when there is none, nothing when it is no object.
std::optional<Fields> plumb_member(Fields& fields);
/// Its member "switches".
void read_switches(Fields& fields, Fields& plumb, const ApiLimits& limits, GenerationOptions& options);
/// Passes on what is wrong in it, and refuses members that nobody asked for.
void refuse_unknown(Fields& fields, const Fields& plumb, std::string_view known);

inline constexpr std::int64_t kLargestMaxTokens = std::int64_t{1} << 40;  // the context decides; this only bounds sums

}  // namespace plumb::server

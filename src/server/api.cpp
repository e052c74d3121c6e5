#include "server/api.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "tensor/strict_json.h"

namespace plumb::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownBytes = 80;  // of a client's text in a message
constexpr double kLargestTemperature = 100.0;
constexpr std::int64_t kLargestMaxTokens = std::int64_t{1} << 40;  // the context decides; this only bounds sums
constexpr std::string_view kPromptForms =
    "a string, an array of strings, an array of token ids or an array of such arrays";

tl::unexpected<ApiError> refuse(std::string param, std::string message, std::string code = "invalid_value") {
  return tl::unexpected(ApiError{.message = std::move(message), .param = std::move(param), .code = std::move(code)});
}

// Names that come from the client are shown cut, so that an error stays readable.
std::string shorten(std::string_view text) {
  if (text.size() <= kShownBytes) return std::string(text);
  return std::string(text.substr(0, kShownBytes)) + "...";
}

struct JsonRefused {
  std::string message;
};

// Bounds what the parser builds while it builds it, and sees duplicate keys, which a JSON object would swallow.
class StructureCheck {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (++values_ > kMaxValues) throw JsonRefused{fmt::format("more than {} values", kMaxValues)};
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxDepth)
      throw JsonRefused{fmt::format("nested deeper than {} levels", kMaxDepth)};
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(value.get_ref<const std::string&>()).second)
      throw JsonRefused{fmt::format("key '{}' appears twice", shorten(value.get_ref<const std::string&>()))};
    return true;
  }

 private:
  std::int64_t values_ = 0;
  std::vector<std::set<std::string>> keys_;
};

ApiResult<Json> parse_object(std::string_view body) {
  try {
    StructureCheck check;
    Json json = Json::parse(body.begin(), body.end(), std::ref(check));
    if (!json.is_object()) return refuse("", "the request body is not a JSON object", "invalid_json");
    return json;
  } catch (const JsonRefused& e) {
    return refuse("", "the request body is refused: " + e.message, "invalid_json");
  } catch (const nlohmann::json::exception& e) {
    return refuse("", "the request body is not valid JSON: " + json_complaint(e), "invalid_json");
  }
}

// Takes fields out of a request one by one; the first wrong one is kept as the error, what remains is unknown.
class Fields {
 public:
  explicit Fields(Json json) : json_(std::move(json)) {}

  // The value of a field; null counts as absent. The pointer lives as long as this object.
  const Json* find(std::string_view name) {
    seen_.insert(std::string(name));
    const auto it = json_.find(name);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }

  void fail(std::string param, std::string message, std::string code = "invalid_value") {
    if (!error_) error_ = ApiError{.message = std::move(message), .param = std::move(param), .code = std::move(code)};
  }
  bool failed() const { return error_.has_value(); }
  tl::unexpected<ApiError> error() const { return tl::unexpected(*error_); }

  std::optional<bool> boolean(std::string_view name) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    wrong_type(name, "a boolean");
    return std::nullopt;
  }

  std::optional<std::string> string(std::string_view name) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    wrong_type(name, "a string");
    return std::nullopt;
  }

  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) {
      wrong_type(name, "an integer");
      return std::nullopt;
    }
    const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t(high);
    if (too_large || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high) {
      fail(std::string(name), fmt::format("{} must be between {} and {}", name, low, high));
      return std::nullopt;
    }
    return value->get<std::int64_t>();
  }

  std::optional<double> number(std::string_view name, double low, double high) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) {
      wrong_type(name, "a number");
      return std::nullopt;
    }
    const double x = value->get<double>();
    if (!(low <= x && x <= high)) {
      fail(std::string(name), fmt::format("{} must be between {} and {}", name, low, high));
      return std::nullopt;
    }
    return x;
  }

  void wrong_type(std::string_view name, std::string_view expected) {
    fail(std::string(name), fmt::format("{} must be {}", name, expected), "invalid_type");
  }

  std::vector<std::string> unknown() const {
    std::vector<std::string> names;
    for (const auto& item : json_.items())
      if (!seen_.contains(item.key())) names.push_back(item.key());
    return names;
  }

 private:
  Json json_;
  std::set<std::string> seen_;
  std::optional<ApiError> error_;
};

// Token ids of an array, each in [0, vocab).
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

// A field whose meaning this version cannot honour. `neutral` values ask for nothing and are accepted.
struct Unsupported {
  std::string_view name;
  bool (*neutral)(const Json&);
  std::string_view advice;
};

bool is_false(const Json& v) { return v.is_boolean() && !v.get<bool>(); }
bool is_true(const Json& v) { return v.is_boolean() && v.get<bool>(); }
bool is_zero(const Json& v) { return v.is_number() && v.get<double>() == 0; }
bool is_one(const Json& v) { return v.is_number() && v.get<double>() == 1; }
bool is_none(const Json& v) { return v == "none"; }
bool is_blank(const Json& v) { return (v.is_object() || v.is_array()) ? v.empty() : v == ""; }
bool is_text_format(const Json& v) { return v.is_object() && v.contains("type") && v["type"] == "text"; }
bool is_disabled(const Json& v) { return v.is_object() && v.contains("type") && v["type"] == "disabled"; }
bool never(const Json&) { return false; }

constexpr Unsupported kUnsupported[] = {
    {"logit_bias", is_blank, ""},
    {"presence_penalty", is_zero, "leave it at 0"},
    {"frequency_penalty", is_zero, "leave it at 0"},
    {"repetition_penalty", is_one, "leave it at 1"},
    {"min_tokens", is_zero, "use ignore_eos with max_tokens"},
    {"stop_regex", is_blank, "use stop"},
    {"no_stop_trim", is_false, ""},
    {"include_stop_str_in_output", is_false, ""},
    {"response_format", is_text_format, "only {\"type\": \"text\"} is"},
    {"prompt_logprobs", never, "use /v1/completions with echo and logprobs"},
    {"truncate_prompt_tokens", never, "a prompt is never cut"},
    {"cache_salt", is_blank, "use the switch prefix_cache to compute a prompt anew"},
};

constexpr Unsupported kUnsupportedInCompletions[] = {
    {"suffix", is_blank, ""},
};

constexpr Unsupported kUnsupportedInChat[] = {
    {"tools", is_blank, "write tool definitions and calls into the messages"},
    {"tool_choice", is_none, "only \"none\" is"},
    {"functions", is_blank, ""},
    {"function_call", is_none, ""},
    {"reasoning_effort", is_none, "this encoding has no thinking mode"},
    {"thinking", is_disabled, "this encoding has no thinking mode"},
    {"reasoning", is_blank, "this encoding has no thinking mode"},
    {"chat_template_kwargs", is_blank, ""},
    {"continue_final_message", is_false, "use /v1/completions to continue a text"},
    {"add_generation_prompt", is_true, "use /v1/completions for prompts of another form"},
    {"echo", is_false, "use /v1/completions"},
    {"input_ids", never, "use /v1/completions with token ids as prompt"},
    {"task", never, ""},
};

void refuse_unsupported(Fields& fields, std::span<const Unsupported> table) {
  for (const Unsupported& entry : table) {
    const Json* value = fields.find(entry.name);
    if (value == nullptr || entry.neutral(*value)) continue;
    fields.fail(std::string(entry.name),
                fmt::format("{} is not supported by this version{}{}", entry.name, entry.advice.empty() ? "" : "; ",
                            entry.advice),
                "unsupported_parameter");
  }
}

void read_stop(Fields& fields, const ApiLimits& limits, GenerationOptions& options) {
  const Json* stop = fields.find("stop");
  if (stop != nullptr && stop->is_string()) {
    options.stop.push_back(stop->get<std::string>());
  } else if (stop != nullptr && stop->is_array()) {
    if (stop->size() > limits.max_stops)
      return fields.fail("stop",
                         fmt::format("stop has {} strings; at most {} are allowed", stop->size(), limits.max_stops));
    for (const Json& text : *stop) {
      if (!text.is_string()) return fields.wrong_type("stop", "a string or an array of strings");
      options.stop.push_back(text.get<std::string>());
    }
  } else if (stop != nullptr) {
    return fields.wrong_type("stop", "a string or an array of strings");
  }
  for (const std::string& text : options.stop)
    if (text.empty() || text.size() > limits.max_stop_bytes)
      return fields.fail("stop", fmt::format("a stop string must have 1 to {} bytes", limits.max_stop_bytes));

  const Json* ids = fields.find("stop_token_ids");
  if (ids == nullptr) return;
  if (!ids->is_array()) return fields.wrong_type("stop_token_ids", "an array of token ids");
  if (ids->size() > limits.max_stop_token_ids)
    return fields.fail("stop_token_ids", fmt::format("at most {} ids are allowed", limits.max_stop_token_ids));
  read_ids(fields, "stop_token_ids", *ids, limits, options.stop_token_ids);
}

void read_sampling(Fields& fields, GenerationOptions& options) {
  Sampling& sampling = options.sampling;
  if (const auto x = fields.number("temperature", 0.0, kLargestTemperature)) sampling.temperature = *x;
  if (const auto x = fields.number("top_p", 0.0, 1.0)) {
    if (*x == 0.0) fields.fail("top_p", "top_p must be greater than 0; temperature 0 is the greedy choice");
    sampling.top_p = *x;
  }
  if (const auto k = fields.integer("top_k", -1, std::numeric_limits<int>::max()))
    sampling.top_k = static_cast<int>(std::max<std::int64_t>(0, *k));
  if (const auto x = fields.number("min_p", 0.0, 1.0)) sampling.min_p = *x;
  if (const Json* seed = fields.find("seed")) {
    if (!seed->is_number_integer()) return fields.wrong_type("seed", "an integer");
    sampling.seed =
        seed->is_number_unsigned() ? seed->get<std::uint64_t>() : static_cast<std::uint64_t>(seed->get<std::int64_t>());
    options.seed_given = true;
  }
}

void read_stream(Fields& fields, GenerationOptions& options) {
  options.stream = fields.boolean("stream").value_or(false);
  const Json* stream_options = fields.find("stream_options");
  if (stream_options == nullptr) return;
  if (!stream_options->is_object()) return fields.wrong_type("stream_options", "an object");
  if (!options.stream) return fields.fail("stream_options", "stream_options needs stream to be true");
  for (const auto& item : stream_options->items()) {
    if (item.key() == "include_usage") {
      if (!item.value().is_boolean()) return fields.wrong_type("stream_options.include_usage", "a boolean");
      options.include_usage = item.value().get<bool>();
    } else if (item.value() != false && !item.value().is_null()) {
      options.ignored.push_back("stream_options." + item.key());
    }
  }
}

// "plumb": {"switches": {"NAME": "on|off[@LAYERS]"}}
void read_switches(Fields& fields, const ApiLimits& limits, GenerationOptions& options) {
  options.settings = limits.settings;
  const Json* plumb = fields.find("plumb");
  if (plumb == nullptr) return;
  if (!plumb->is_object()) return fields.wrong_type("plumb", "an object");
  for (const auto& member : plumb->items()) {
    if (member.key() != "switches")
      return fields.fail("plumb", fmt::format("plumb has no member '{}'; there is: switches", shorten(member.key())));
    if (!member.value().is_object()) return fields.wrong_type("plumb.switches", "an object of names and values");
    for (const auto& entry : member.value().items()) {
      if (!entry.value().is_string())
        return fields.wrong_type("plumb.switches", "an object whose values are strings such as \"on\" or \"off@0-3\"");
      const auto set = set_request_switch(options.settings, entry.key(), entry.value().get_ref<const std::string&>());
      if (!set) return fields.fail(set.error().param, set.error().message, set.error().code);
    }
  }
  if (const auto known = options.settings.check_layers(limits.layers); !known)
    fields.fail("plumb.switches", known.error().message, "invalid_switch");
}

std::int64_t largest_k(const ApiLimits& limits) {
  return limits.max_logprobs < 0 ? limits.vocab_size : std::min(limits.max_logprobs, limits.vocab_size);
}

void read_common(Fields& fields, const ApiLimits& limits, GenerationOptions& options) {
  options.model = fields.string("model").value_or("");
  options.max_tokens = fields.integer("max_tokens", 0, kLargestMaxTokens);
  options.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  options.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(false);
  options.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  options.n = static_cast<int>(fields.integer("n", 1, static_cast<std::int64_t>(limits.max_choices)).value_or(1));
  if (const auto best_of = fields.integer("best_of", 1, static_cast<std::int64_t>(limits.max_choices)))
    if (*best_of != options.n)
      fields.fail("best_of", "best_of must equal n: this version does not rank samples", "unsupported_parameter");
  read_sampling(fields, options);
  read_stop(fields, limits, options);
  read_stream(fields, options);
  read_switches(fields, limits, options);
  refuse_unsupported(fields, kUnsupported);
}

void finish_common(const Fields& fields, GenerationOptions& options) {
  const std::vector<std::string> unknown = fields.unknown();
  options.ignored.insert(options.ignored.end(), unknown.begin(), unknown.end());
}

// string | [string] | [id] | [[id]]
void read_prompts(Fields& fields, const ApiLimits& limits, std::vector<Prompt>& prompts) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "prompt is missing", "missing_required_parameter");
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array()) return fields.wrong_type("prompt", kPromptForms);
  if (prompt->empty()) return fields.fail("prompt", "prompt is empty");
  if (prompt->front().is_number()) {
    read_ids(fields, "prompt", *prompt, limits, std::get<1>(prompts.emplace_back(std::vector<std::int32_t>())));
    return;
  }
  if (prompt->size() > limits.max_prompts)
    return fields.fail(
        "prompt", fmt::format("prompt has {} entries; at most {} are allowed", prompt->size(), limits.max_prompts));
  for (const Json& entry : *prompt) {
    if (entry.is_string())
      prompts.emplace_back(entry.get<std::string>());
    else if (entry.is_array())
      read_ids(fields, "prompt", entry, limits, std::get<1>(prompts.emplace_back(std::vector<std::int32_t>())));
    else
      return fields.wrong_type("prompt", kPromptForms);
    if (prompts.front().index() != prompts.back().index()) return fields.wrong_type("prompt", kPromptForms);
  }
}

// A string, or parts of type text, whose texts are joined.
void read_content(Fields& fields, const std::string& param, const Json& message, std::string& content) {
  const auto it = message.find("content");
  if (it != message.end() && it->is_string()) {
    content = it->get<std::string>();
    return;
  }
  if (it == message.end() || !it->is_array())
    return fields.wrong_type(param + ".content", "a string or an array of parts of type text");
  for (const Json& part : *it) {
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
                         part["text"].is_string();
    if (!is_text) return fields.wrong_type(param + ".content", "a string or an array of parts of type text");
    content += part["text"].get_ref<const std::string&>();
  }
}

void read_messages(Fields& fields, const ApiLimits& limits, std::vector<ChatMessage>& messages) {
  const Json* array = fields.find("messages");
  if (array == nullptr) return fields.fail("messages", "messages is missing", "missing_required_parameter");
  if (!array->is_array()) return fields.wrong_type("messages", "an array");
  if (array->empty()) return fields.fail("messages", "messages is empty");
  if (array->size() > limits.max_messages)
    return fields.fail(
        "messages", fmt::format("messages has {} entries; at most {} are allowed", array->size(), limits.max_messages));
  for (const Json& message : *array) {
    const std::string param = fmt::format("messages[{}]", messages.size());
    if (!message.is_object()) return fields.wrong_type(param, "an object");
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) return fields.wrong_type(param + ".role", "a string");
    ChatMessage& parsed = messages.emplace_back();
    parsed.role = role->get<std::string>();
    for (const char* name : {"tool_calls", "function_call", "reasoning_content", "reasoning"})
      if (const auto it = message.find(name); it != message.end() && !it->is_null() && !is_blank(*it))
        return fields.fail(param + "." + name,
                           fmt::format("{}.{} is not supported by this version; write it into content", param, name),
                           "unsupported_parameter");
    read_content(fields, param, message, parsed.content);
  }
}

}  // namespace

std::string error_body(const ApiError& error) {
  Json body;
  body["error"]["message"] = error.message;
  body["error"]["type"] = error.type;
  body["error"]["param"] = error.param.empty() ? Json() : Json(error.param);
  body["error"]["code"] = error.code;
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_quote(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiResult<void> set_request_switch(Settings& settings, std::string_view name, std::string_view value,
                                   std::span<const Switch> table) {
  const std::string param = "plumb.switches";
  for (const Switch& entry : table)
    if (entry.name == name && entry.scope == Scope::launch)
      return refuse(
          param,
          fmt::format("switch {} is decided at launch; start the server with --set {}={}", name, name, shorten(value)),
          "launch_scope_switch");
  const auto set = settings.set(shorten(name), value);
  if (!set) return refuse(param, set.error().message, "invalid_switch");
  return {};
}

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const ApiLimits& limits) {
  auto json = parse_object(body);
  if (!json) return tl::unexpected(json.error());
  Fields fields(std::move(*json));
  CompletionRequest request;
  GenerationOptions& options = request.options;
  read_common(fields, limits, options);
  refuse_unsupported(fields, kUnsupportedInCompletions);
  read_prompts(fields, limits, request.prompts);
  request.echo = fields.boolean("echo").value_or(false);
  if (!options.max_tokens) options.max_tokens = 16;              // OpenAI's default
  const std::int64_t lowest = limits.max_logprobs < 0 ? -1 : 0;  // -1: the whole vocabulary
  if (const auto k = fields.integer("logprobs", lowest, largest_k(limits)))
    options.logprobs = static_cast<int>(*k < 0 ? limits.vocab_size : *k);
  if (*options.max_tokens == 0 && !request.echo)
    fields.fail("max_tokens", "max_tokens 0 needs echo: there would be nothing to return");
  if (request.prompts.size() * static_cast<std::size_t>(options.n) > limits.max_choices)
    fields.fail("n", fmt::format("{} prompts times n {} is more than {} choices", request.prompts.size(), options.n,
                                 limits.max_choices));
  if (fields.failed()) return fields.error();
  finish_common(fields, options);
  return request;
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const ApiLimits& limits) {
  auto json = parse_object(body);
  if (!json) return tl::unexpected(json.error());
  Fields fields(std::move(*json));
  ChatRequest request;
  GenerationOptions& options = request.options;
  read_common(fields, limits, options);
  refuse_unsupported(fields, kUnsupportedInChat);
  read_messages(fields, limits, request.messages);
  const auto completion_tokens = fields.integer("max_completion_tokens", 1, kLargestMaxTokens);
  if (completion_tokens) options.max_tokens = completion_tokens;
  if (options.max_tokens == 0) fields.fail("max_tokens", "max_tokens must be at least 1");
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, largest_k(limits));
  if (top && !logprobs) fields.fail("top_logprobs", "top_logprobs needs logprobs to be true");
  if (logprobs) options.logprobs = static_cast<int>(top.value_or(0));
  if (fields.failed()) return fields.error();
  finish_common(fields, options);
  return request;
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ApiLimits& limits) {
  auto json = parse_object(body);
  if (!json) return tl::unexpected(json.error());
  Fields fields(std::move(*json));
  TokenizeRequest request;
  request.prompt = fields.string("prompt");
  const bool has_messages = fields.find("messages") != nullptr;
  if (has_messages) read_messages(fields, limits, request.messages);
  if (request.prompt.has_value() == has_messages)
    fields.fail("prompt", "give exactly one of prompt and messages", "missing_required_parameter");
  if (fields.failed()) return fields.error();
  return request;
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ApiLimits& limits) {
  auto json = parse_object(body);
  if (!json) return tl::unexpected(json.error());
  Fields fields(std::move(*json));
  DetokenizeRequest request;
  request.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(false);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr)
    fields.fail("tokens", "tokens is missing", "missing_required_parameter");
  else if (!tokens->is_array())
    fields.wrong_type("tokens", "an array of token ids");
  else
    read_ids(fields, "tokens", *tokens, limits, request.tokens);
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace plumb::server

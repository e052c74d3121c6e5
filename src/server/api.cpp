#include "server/api.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/json_fields.h"

namespace plumb::server {
namespace {

constexpr double kLargestTemperature = 100.0, kLargestPenalty = 2.0, kLargestRepetition = 100.0, kLargestBias = 100.0;
constexpr double kLeastRepetition = std::numeric_limits<double>::min();  // it divides
constexpr std::string_view kPromptForms =
    "a string, an array of strings, an array of token ids or an array of such arrays";

constexpr Unsupported kUnsupported[] = {
    {"min_tokens", is_zero, "use ignore_eos with max_tokens"},
    {"stop_regex", is_blank, "use stop"},
    {"no_stop_trim", is_false, ""},
    {"include_stop_str_in_output", is_false, ""},
    {"response_format", is_text_format, "only {\"type\": \"text\"} is"},
    {"prompt_logprobs", never, "use /v1/completions with echo and logprobs"},
    {"truncate_prompt_tokens", never, "a prompt is never cut"},
    {"cache_salt", is_blank, "use the switch prefix_cache to compute a prompt anew"},
};

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
  if (const auto x = fields.number("presence_penalty", -kLargestPenalty, kLargestPenalty))
    sampling.presence_penalty = *x;
  if (const auto x = fields.number("frequency_penalty", -kLargestPenalty, kLargestPenalty))
    sampling.frequency_penalty = *x;
  if (const auto x = fields.number("repetition_penalty", 0.0, kLargestRepetition)) {
    if (*x < kLeastRepetition)
      fields.fail("repetition_penalty",
                  fmt::format("repetition_penalty must be at least {}; 1 changes nothing", kLeastRepetition));
    sampling.repetition_penalty = *x;
  }
  if (const Json* seed = fields.find("seed")) {
    if (!seed->is_number_integer()) return fields.wrong_type("seed", "an integer");
    sampling.seed =
        seed->is_number_unsigned() ? seed->get<std::uint64_t>() : static_cast<std::uint64_t>(seed->get<std::int64_t>());
    options.seed_given = true;
  }
}

// {"id": bias}
void read_bias(Fields& fields, const ApiLimits& limits, Sampling& sampling) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.wrong_type("logit_bias", "an object of token ids and numbers");
  if (bias->size() > limits.max_biases)
    return fields.fail("logit_bias", fmt::format("logit_bias has {} entries; at most {} are allowed", bias->size(),
                                                 limits.max_biases));
  for (const auto& item : bias->items()) {
    const std::string& key = item.key();
    std::int32_t id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc() || end != key.data() + key.size() || id < 0 || id >= limits.vocab_size)
      return fields.fail("logit_bias", fmt::format("logit_bias: '{}' is no token id of the vocabulary of {}",
                                                   shorten(key), limits.vocab_size));
    if (key != std::to_string(id))  // or one token could have two biases
      return fields.fail("logit_bias", fmt::format("logit_bias: write token id '{}' as '{}'", shorten(key), id));
    const double value = item.value().is_number() ? item.value().get<double>() : kLargestBias + 1;
    if (!(-kLargestBias <= value && value <= kLargestBias))
      return fields.fail("logit_bias", fmt::format("logit_bias of token {} must be a number between {} and {}", id,
                                                   -kLargestBias, kLargestBias));
    sampling.logit_bias[id] = static_cast<float>(value);
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
    } else if (item.key() == "continuous_usage_stats") {
      if (!item.value().is_boolean()) return fields.wrong_type("stream_options.continuous_usage_stats", "a boolean");
      options.continuous_usage = item.value().get<bool>();
    } else if (item.value() != false && !item.value().is_null()) {
      options.ignored.push_back("stream_options." + item.key());
    }
  }
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

}  // namespace

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
  options.settings = limits.settings;
  read_sampling(fields, options);
  read_bias(fields, limits, options.sampling);
  read_stop(fields, limits, options);
  read_stream(fields, options);
  refuse_unsupported(fields, kUnsupported);
}

void finish_common(const Fields& fields, GenerationOptions& options) {
  const std::vector<std::string> unknown = fields.unknown();
  options.ignored.insert(options.ignored.end(), unknown.begin(), unknown.end());
}

// "plumb": {"switches": {"NAME": "on|off[@LAYERS]"}, …}
void read_switches(Fields& fields, Fields& plumb, const ApiLimits& limits, GenerationOptions& options) {
  const Json* switches = plumb.find("switches");
  if (switches == nullptr) return;
  if (!switches->is_object()) return fields.wrong_type("plumb.switches", "an object of names and values");
  for (const auto& entry : switches->items()) {
    if (!entry.value().is_string())
      return fields.wrong_type("plumb.switches", "an object whose values are strings such as \"on\" or \"off@0-3\"");
    const auto set = set_request_switch(options.settings, entry.key(), entry.value().get_ref<const std::string&>());
    if (!set) return fields.fail_with(set.error());
  }
  if (const auto known = options.settings.check_layers(limits.layers); !known)
    fields.fail("plumb.switches", known.error().message, "invalid_switch");
}

std::optional<Fields> plumb_member(Fields& fields) {
  const Json* plumb = fields.find("plumb");
  if (plumb == nullptr) return Fields(Json::object());
  if (plumb->is_object()) return Fields(plumb, "plumb.");
  fields.wrong_type("plumb", "an object");
  return std::nullopt;
}

void refuse_unknown(Fields& fields, const Fields& plumb, std::string_view known) {
  if (plumb.failed()) fields.fail_with(plumb.error().value());
  for (const std::string& name : plumb.unknown())
    fields.fail("plumb", fmt::format("plumb has no member '{}'; there are: {}", shorten(name), known));
}

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
  if (auto plumb = plumb_member(fields)) {
    read_switches(fields, *plumb, limits, options);
    refuse_unknown(fields, *plumb, "switches");
  }
  read_prompts(fields, limits, request.prompts);
  request.suffix = fields.string("suffix").value_or("");
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  request.echo = fields.boolean("echo").value_or(false);
  if (!options.max_tokens) options.max_tokens = 16;              // OpenAI's default
  const std::int64_t lowest = limits.max_logprobs < 0 ? -1 : 0;  // -1: the whole vocabulary
  if (const auto k = fields.integer("logprobs", lowest, largest_k(limits)))
    options.logprobs = static_cast<int>(*k < 0 ? limits.vocab_size : *k);
  if (*options.max_tokens == 0 && !request.echo)
    fields.fail("max_tokens", "max_tokens 0 needs echo: there would be nothing to return");
  if (request.prompts.size() * static_cast<std::size_t>(options.n) > limits.max_choices)
    fields.fail("n", fmt::format("{} prompts times n {} is more than the {} sequences that may wait",
                                 request.prompts.size(), options.n, limits.max_choices));
  if (!fields.failed() && !request.suffix.empty() &&
      (request.echo || !std::holds_alternative<std::string>(request.prompts.front())))
    fields.fail("suffix", "suffix needs prompts that are texts, and no echo");
  if (fields.failed()) return fields.error();
  finish_common(fields, options);
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

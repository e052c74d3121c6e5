#include "server/service.h"

#include <array>
#include <atomic>
#include <string_view>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "server/chat_render.h"
#include "server/generation.h"
#include "server/text_stream.h"

namespace plumb::server {

const char* const kVersion = "0.1.0";

namespace {

using Json = nlohmann::ordered_json;
using ExchangePtr = std::shared_ptr<Exchange>;

constexpr std::size_t kMaxNames = 20;  // listed in x-plumb-ignored
constexpr std::size_t kMaxNameBytes = 64;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

ApiError not_found(std::string message, std::string param, std::string code) {
  return {.status = 404,
          .type = "not_found_error",
          .message = std::move(message),
          .param = std::move(param),
          .code = std::move(code)};
}

// Names of fields come from the client: in a header only harmless characters may appear.
std::string header_names(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) {
    if (!out.empty()) out += ", ";
    for (const char c : names[i].substr(0, kMaxNameBytes))
      out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ? c : '?';
  }
  if (names.size() > kMaxNames) out += ", ...";
  return out;
}

Json op_budget(const OpBudget& budget) {
  Json json;
  json["metric"] = budget.metric == Metric::exact ? "exact" : "nmse";
  json["bound"] = budget.bound;
  return json;
}

}  // namespace

struct Service::Impl {
  Impl(ServiceOptions given, Generator& the_generator, const Encoding& the_encoding, ModelInfo the_model)
      : options(with_vocab(std::move(given), the_encoding)),
        generator(the_generator),
        encoding(the_encoding),
        model(std::move(the_model)),
        model_id(options.served_model_name.value_or(model.name)),
        texts(encoding),
        metrics({.version = kVersion, .model = model_id, .model_hash = model.hash}),
        context{.generator = generator,
                .encoding = encoding,
                .texts = texts,
                .metrics = metrics,
                .running = running,
                .model = model_id,
                .keep_alive = options.keep_alive,
                .health_timeout = options.health_timeout} {}

  static ServiceOptions with_vocab(ServiceOptions options, const Encoding& encoding) {
    options.limits.vocab_size = encoding.vocab_size();
    options.limits.part_separator = encoding.part_separator();
    return options;
  }

  void completions(const HttpRequest& request, const ExchangePtr& exchange);
  void chat_completions(const HttpRequest& request, const ExchangePtr& exchange);
  void models(const HttpRequest& request, const ExchangePtr& exchange);
  void one_model(const HttpRequest& request, const ExchangePtr& exchange);
  void tokenize(const HttpRequest& request, const ExchangePtr& exchange);
  void render_text(const HttpRequest& request, const ExchangePtr& exchange);
  void detokenize(const HttpRequest& request, const ExchangePtr& exchange);
  void health(const HttpRequest& request, const ExchangePtr& exchange);
  void health_generate(const HttpRequest& request, const ExchangePtr& exchange);
  void switches(const HttpRequest& request, const ExchangePtr& exchange);
  void metrics_text(const HttpRequest& request, const ExchangePtr& exchange);
  void server_info(const HttpRequest& request, const ExchangePtr& exchange);

  void dispatch(const HttpRequest& request, const ExchangePtr& exchange);
  void refuse(const ExchangePtr& exchange, const ApiError& error) {
    metrics.refused(error.code);
    exchange->reply(error_reply(error));
  }
  static void reply(const ExchangePtr& exchange, const Json& json) {
    exchange->reply({.body = dump(json), .headers = {}});
  }

  bool refused_at_the_door(const GenerationOptions& asked, const ExchangePtr& exchange);
  std::optional<ApiError> check_size(const GenerationPlan& plan) const;
  void generate(GenerationPlan plan, const ExchangePtr& exchange);
  struct Rendered {
    std::unique_ptr<ChatPrompt> prompt;
    RenderedPrompt text;
  };
  ApiResult<Rendered> render(Conversation conversation, const std::string& thinking_field, const Settings& settings);
  void warn_of_second_beginning(const std::vector<std::int32_t>& ids);
  Json model_object() const;
  Json switch_list() const;

  const ServiceOptions options;
  Generator& generator;
  const Encoding& encoding;
  const ModelInfo model;
  const std::string model_id;
  const TokenTexts texts;
  Metrics metrics;
  RunningGenerations running;
  RenderedChats rendered_chats;
  const GenerationContext context;
  std::atomic<bool> draining{false};
};

namespace {

struct Route {
  std::string_view path;
  std::string_view method;
  void (Service::Impl::*handler)(const HttpRequest&, const ExchangePtr&);
};

constexpr std::string_view kModelPrefix = "/v1/models/";

// Everything that is served.
constexpr std::array kRoutes{
    Route{"/v1/completions", "POST", &Service::Impl::completions},
    Route{"/v1/chat/completions", "POST", &Service::Impl::chat_completions},
    Route{"/v1/models", "GET", &Service::Impl::models},
    Route{"/tokenize", "POST", &Service::Impl::tokenize},
    Route{"/v1/tokenize", "POST", &Service::Impl::tokenize},
    Route{"/plumb/render", "POST", &Service::Impl::render_text},
    Route{"/detokenize", "POST", &Service::Impl::detokenize},
    Route{"/v1/detokenize", "POST", &Service::Impl::detokenize},
    Route{"/health", "GET", &Service::Impl::health},
    Route{"/health_generate", "GET", &Service::Impl::health_generate},
    Route{"/v1/switches", "GET", &Service::Impl::switches},
    Route{"/metrics", "GET", &Service::Impl::metrics_text},
    Route{"/get_server_info", "GET", &Service::Impl::server_info},
    Route{"/server_info", "GET", &Service::Impl::server_info},
    Route{kModelPrefix, "GET", &Service::Impl::one_model},  // and all that begins with it
};

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool prefix = route.path == kModelPrefix;
    if (prefix ? path.starts_with(route.path) && path.size() > route.path.size() : path == route.path) return &route;
  }
  return nullptr;
}

}  // namespace

void Service::Impl::dispatch(const HttpRequest& request, const ExchangePtr& exchange) {
  const Route* route = find_route(request.path);
  if (route == nullptr) return refuse(exchange, not_found("there is no " + request.path, "", "endpoint_not_found"));
  const bool fits = request.method == route->method || (request.method == "HEAD" && route->method == "GET");
  if (fits) return (this->*route->handler)(request, exchange);
  ApiError error{.status = 405, .message = {}, .param = {}, .code = "method_not_allowed"};
  error.message = fmt::format("{} takes {} only", request.path, route->method);
  metrics.refused(error.code);
  HttpReply answer = error_reply(error);
  answer.headers.emplace_back("Allow", route->method == "GET" ? "GET, HEAD" : std::string(route->method));
  exchange->reply(std::move(answer));
}

// Checks that need no tokens; answers itself when the request is refused.
bool Service::Impl::refused_at_the_door(const GenerationOptions& asked, const ExchangePtr& exchange) {
  if (draining) {
    refuse(exchange, rejection_error({Rejection::Kind::stopping, "the server is stopping"}));
    return true;
  }
  if (options.served_model_name && !asked.model.empty() && asked.model != *options.served_model_name) {
    refuse(exchange,
           not_found(fmt::format("model '{}' is not served here; there is: {}", asked.model.substr(0, 200), model_id),
                     "model", "model_not_found"));
    return true;
  }
  return false;
}

std::optional<ApiError> Service::Impl::check_size(const GenerationPlan& plan) const {
  const GenerationOptions& asked = plan.options;
  const char* param = plan.form == GenerationPlan::Form::chat ? "messages" : "prompt";
  double entries = 0;
  for (const auto& prompt : plan.prompts) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length == 0) return ApiError{.message = "prompt is empty", .param = param, .code = "invalid_value"};
    const std::int64_t limit = model.max_context;
    if (length + *asked.max_tokens > limit || (*asked.max_tokens > 0 && length >= limit)) {
      std::string message =
          fmt::format("the prompt has {} tokens and max_tokens is {}: together more than the context of {} tokens",
                      length, *asked.max_tokens, limit);
      return ApiError{.message = std::move(message), .param = param, .code = "context_length_exceeded"};
    }
    const std::int64_t scored = (plan.echo ? length : 0) + *asked.max_tokens;
    entries += static_cast<double>(scored) * asked.n * std::max(asked.logprobs, 0);
  }
  if (entries > static_cast<double>(options.max_score_entries))
    return ApiError{.message = fmt::format("{} log-probabilities are more than {} an answer may have; ask for fewer "
                                           "tokens, prompts or a smaller k",
                                           entries, options.max_score_entries),
                    .param = "logprobs",
                    .code = "too_many_logprobs"};
  return std::nullopt;
}

void Service::Impl::generate(GenerationPlan plan, const ExchangePtr& exchange) {
  if (const auto error = check_size(plan)) return refuse(exchange, *error);
  for (const auto& prompt : plan.prompts) warn_of_second_beginning(prompt);
  if (!plan.options.ignored.empty()) plan.headers.emplace_back("x-plumb-ignored", header_names(plan.options.ignored));
  start_generation(context, std::move(plan), exchange);
}

void Service::Impl::completions(const HttpRequest& request, const ExchangePtr& exchange) {
  const auto arrival = std::chrono::steady_clock::now();
  auto parsed = parse_completion_request(request.body, options.limits);
  if (!parsed) return refuse(exchange, parsed.error());
  if (refused_at_the_door(parsed->options, exchange)) return;
  GenerationPlan plan{.form = GenerationPlan::Form::completion,
                      .options = std::move(parsed->options),
                      .prompts = {},
                      .echo = parsed->echo,
                      .chat = {},
                      .headers = {},
                      .arrival = arrival};
  for (Prompt& prompt : parsed->prompts) {
    auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt);
    if (ids == nullptr && !parsed->suffix.empty()) {
      auto infill = encoding.encode_infill(std::get<std::string>(prompt), parsed->suffix);
      if (!infill)
        return refuse(exchange,
                      {.message = infill.error().message, .param = "suffix", .code = "unsupported_parameter"});
      plan.prompts.push_back(std::move(*infill));
    } else if (ids == nullptr) {
      const std::string& text = std::get<std::string>(prompt);
      plan.prompts.push_back(parsed->add_special_tokens ? encoding.encode_prompt(text) : encoding.encode(text));
    } else {
      plan.prompts.push_back(std::move(*ids));
    }
  }
  generate(std::move(plan), exchange);
}

namespace {

// A refusal of the encoding in the words of the request: its message begins with what it is about, or with the message.
ApiError encoding_error(std::string message, const std::string& thinking_field) {
  const std::pair<std::string_view, std::string> fields[] = {{"thinking", thinking_field},
                                                             {"reasoning effort", thinking_field},
                                                             {"tools", "tools"},
                                                             {"tool_choice", "tool_choice"},
                                                             {"task", "task"},
                                                             {"user_specials", "plumb.user_specials"}};
  for (const auto& [about, field] : fields) {
    if (!message.starts_with(about) || field.empty()) continue;
    if (message.substr(about.size()).starts_with(':')) message.replace(0, about.size(), field);
    return {.message = std::move(message), .param = field, .code = "unsupported_parameter"};
  }
  return {.message = std::move(message), .param = "messages", .code = "invalid_messages"};
}

}  // namespace

ApiResult<Service::Impl::Rendered> Service::Impl::render(Conversation conversation, const std::string& thinking_field,
                                                         const Settings& settings) {
  auto prompt = encoding.lay_out(std::move(conversation));
  if (!prompt) return tl::unexpected(encoding_error(prompt.error().message, thinking_field));
  RenderedPrompt text = chosen_side<"chat.incremental_render">(settings, RenderStep{prompt->get(), &rendered_chats});
  return Rendered{std::move(*prompt), std::move(text)};
}

void Service::Impl::warn_of_second_beginning(const std::vector<std::int32_t>& ids) {
  if (!ids.empty() && std::find(ids.begin() + 1, ids.end(), encoding.bos()) != ids.end())
    metrics.encode_warning("double_bos");
}

void Service::Impl::chat_completions(const HttpRequest& request, const ExchangePtr& exchange) {
  const auto arrival = std::chrono::steady_clock::now();
  auto parsed = parse_chat_request(request.body, options.limits);
  if (!parsed) return refuse(exchange, parsed.error());
  if (refused_at_the_door(parsed->options, exchange)) return;
  auto rendered = render(std::move(parsed->conversation), parsed->thinking_field, parsed->options.settings);
  if (!rendered) return refuse(exchange, rendered.error());
  const ChatPrompt& prompt = *rendered->prompt;
  metrics.effort(prompt.effort().empty() ? "none" : prompt.effort());
  for (const std::string& kind : prompt.warnings()) metrics.encode_warning(kind);
  GenerationPlan plan{.form = GenerationPlan::Form::chat,
                      .options = std::move(parsed->options),
                      .prompts = {std::move(rendered->text.ids)},
                      .chat = {.parsers = {},
                               .answer_start = prompt.answer_start(),
                               .include_reasoning = parsed->include_reasoning,
                               .effort = prompt.effort(),
                               .warnings = prompt.warnings()},
                      .headers = {},
                      .arrival = arrival};
  for (int i = 0; i < plan.options.n; ++i) plan.chat.parsers.push_back(prompt.reply_parser(parsed->reply));
  const auto length = static_cast<std::int64_t>(plan.prompts.front().size());
  if (!plan.options.max_tokens) plan.options.max_tokens = std::max<std::int64_t>(1, model.max_context - length);
  generate(std::move(plan), exchange);
}

Json Service::Impl::model_object() const {
  Json json;
  json["id"] = model_id;
  json["object"] = "model";
  json["created"] = model.created;
  json["owned_by"] = "plumb";
  json["root"] = model.name;
  json["parent"] = nullptr;
  json["max_model_len"] = model.max_context;
  return json;
}

void Service::Impl::models(const HttpRequest&, const ExchangePtr& exchange) {
  Json json;
  json["object"] = "list";
  json["data"] = Json::array({model_object()});
  reply(exchange, json);
}

void Service::Impl::one_model(const HttpRequest& request, const ExchangePtr& exchange) {
  const std::string id = request.path.substr(kModelPrefix.size());
  if (id == model_id) return reply(exchange, model_object());
  refuse(exchange, not_found(fmt::format("model '{}' is not served here; there is: {}", id.substr(0, 200), model_id),
                             "model", "model_not_found"));
}

void Service::Impl::tokenize(const HttpRequest& request, const ExchangePtr& exchange) {
  auto parsed = parse_tokenize_request(request.body, options.limits);
  if (!parsed) return refuse(exchange, parsed.error());
  std::vector<std::int32_t> tokens;
  if (parsed->prompt) {
    tokens = parsed->add_special_tokens ? encoding.encode_prompt(*parsed->prompt) : encoding.encode(*parsed->prompt);
  } else {
    auto rendered = render(std::move(*parsed->conversation), parsed->thinking_field, parsed->settings);
    if (!rendered) return refuse(exchange, rendered.error());
    tokens = std::move(rendered->text.ids);
  }
  Json json;
  json["tokens"] = tokens;
  json["count"] = tokens.size();
  json["max_model_len"] = model.max_context;
  reply(exchange, json);
}

// What a chat with this body would give to the model, and where it came from.
void Service::Impl::render_text(const HttpRequest& request, const ExchangePtr& exchange) {
  auto parsed = parse_chat_request(request.body, options.limits);
  if (!parsed) return refuse(exchange, parsed.error());
  const auto rendered = render(std::move(parsed->conversation), parsed->thinking_field, parsed->options.settings);
  if (!rendered) return refuse(exchange, rendered.error());
  Utf8Stream stream;
  std::string text;
  for (const std::int32_t id : rendered->text.ids) text += stream.push(texts.bytes(id));
  Json json;
  json["prompt"] = text + stream.finish();
  json["ids"] = rendered->text.ids;
  json["segments"] = Json::array();
  for (std::size_t i = 0; i < rendered->text.ends.size(); ++i) {
    Json segment;
    segment["role"] = rendered->prompt->role(i);
    segment["start"] = i == 0 ? 0 : rendered->text.ends[i - 1];
    segment["end"] = rendered->text.ends[i];
    segment["source"] = i < rendered->text.reused ? "kept" : "encoded";
    json["segments"].push_back(std::move(segment));
  }
  const std::string& effort = rendered->prompt->effort();
  json["effort"] = effort.empty() ? Json() : Json(effort);
  json["warnings"] = rendered->prompt->warnings();
  reply(exchange, json);
}

void Service::Impl::detokenize(const HttpRequest& request, const ExchangePtr& exchange) {
  const auto parsed = parse_detokenize_request(request.body, options.limits);
  if (!parsed) return refuse(exchange, parsed.error());
  Utf8Stream stream;
  std::string text;
  for (const std::int32_t id : parsed->tokens)
    if (!parsed->skip_special_tokens || !encoding.is_special(id)) text += stream.push(texts.bytes(id));
  text += stream.finish();
  Json json;
  json["text"] = text;    // SGLang's name
  json["prompt"] = text;  // vLLM's name
  reply(exchange, json);
}

void Service::Impl::health(const HttpRequest&, const ExchangePtr& exchange) {
  if (draining) return refuse(exchange, rejection_error({Rejection::Kind::stopping, "the server is stopping"}));
  Json json;
  json["status"] = "ok";
  reply(exchange, json);
}

void Service::Impl::health_generate(const HttpRequest&, const ExchangePtr& exchange) {
  GenerationPlan plan{.form = GenerationPlan::Form::health,
                      .options = {},
                      .prompts = {{encoding.eos()}},
                      .chat = {},
                      .headers = {},
                      .arrival = std::chrono::steady_clock::now()};
  plan.options.max_tokens = 1;
  plan.options.sampling.temperature = 0;
  plan.options.settings = options.limits.settings;
  if (!refused_at_the_door(plan.options, exchange)) generate(std::move(plan), exchange);
}

Json Service::Impl::switch_list() const {
  Json list = Json::array();
  for (std::size_t i = 0; i < kSwitchCount; ++i) {
    const Switch& entry = kSwitches[i];
    const SideCounts counts = side_counts(i);
    Json json;
    json["name"] = entry.name;
    json["on"] = entry.on;
    json["off"] = entry.off;
    json["scope"] = entry.scope == Scope::request ? "request" : "launch";
    json["by_default"] = entry.by_default;
    json["setting"] = options.limits.settings.describe(i);
    json["counts"]["on"] = counts.on;
    json["counts"]["off"] = counts.off;
    json["op_budget"] = op_budget(entry.op_budget);
    json["shift"] = entry.shift;
    list.push_back(std::move(json));
  }
  return list;
}

void Service::Impl::switches(const HttpRequest&, const ExchangePtr& exchange) {
  Json json;
  json["version"] = kVersion;
  json["model"] = model_id;
  json["model_hash"] = model.hash;
  json["switches"] = switch_list();
  reply(exchange, json);
}

void Service::Impl::metrics_text(const HttpRequest&, const ExchangePtr& exchange) {
  exchange->reply({.body = metrics.text(generator.stats(), options.limits.settings),
                   .content_type = "text/plain; version=0.0.4; charset=utf-8",
                   .headers = {}});
}

void Service::Impl::server_info(const HttpRequest&, const ExchangePtr& exchange) {
  const GeneratorStats stats = generator.stats();
  Json json;
  json["version"] = kVersion;
  json["model"] = model_id;
  json["model_hash"] = model.hash;
  json["max_model_len"] = model.max_context;
  json["args"] = Json::object();
  for (const auto& [name, value] : options.launch_args) json["args"][name] = value;
  for (std::size_t i = 0; i < kSwitchCount; ++i)
    json["switches"][std::string(kSwitches[i].name)] = options.limits.settings.describe(i);
  Json state;
  state["running"] = stats.running;
  state["waiting"] = stats.waiting;
  state["pages_used"] = stats.pages_used;
  state["pages_total"] = stats.pages_total;
  json["internal_states"] = Json::array({state});
  reply(exchange, json);
}

Service::Service(ServiceOptions options, Generator& generator, const Encoding& encoding, ModelInfo model)
    : impl_(std::make_unique<Impl>(std::move(options), generator, encoding, std::move(model))) {}
Service::~Service() = default;

void Service::handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  try {
    impl_->dispatch(request, exchange);
  } catch (const std::exception& e) {
    spdlog::error("{} {}: {}", request.method, request.path, e.what());
    exchange->reply(error_reply({.status = 500,
                                 .type = "server_error",
                                 .message = "internal error; the log has more",
                                 .param = "",
                                 .code = "internal_error"}));
  }
}

void Service::start_draining() { impl_->draining = true; }
bool Service::wait_until_idle(std::chrono::milliseconds timeout) { return impl_->running.wait_until_none(timeout); }
void Service::cancel_all() { impl_->running.cancel_all(); }
void Service::detach_all() { impl_->running.detach_all(); }
Metrics& Service::metrics() { return impl_->metrics; }

std::string Service::route_label(const std::string& path) {
  const Route* route = find_route(path);
  return route == nullptr ? "other" : std::string(route->path);
}

}  // namespace plumb::server

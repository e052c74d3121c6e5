#include "investigator/world.h"

#include <chrono>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "investigator/secrets.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";
constexpr std::size_t kMaxMessage = 500;  // of a server's error text kept in a record

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

std::string error_text(const std::string& body) {
  const Json j = Json::parse(body, nullptr, false);
  if (j.is_object() && j.contains("error") && j["error"].is_object() && j["error"].contains("message"))
    return text_of(j["error"]["message"]).substr(0, kMaxMessage);
  return Json(body.substr(0, kMaxMessage)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::optional<int> integer(const Json& object, const char* key) {
  constexpr std::int64_t kMost = 1 << 30;
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer()) return std::nullopt;
  const auto value = object[key].get<std::int64_t>();
  if (value < 0 || value > kMost) return std::nullopt;
  return static_cast<int>(value);
}

// Content, and the arguments of tool calls, of a chat message.
std::optional<std::string> chat_text(const Json& choice) {
  if (!choice.contains("message") || !choice["message"].is_object()) return std::nullopt;
  const Json& message = choice["message"];
  std::string text = message.contains("content") ? text_of(message["content"]) : std::string();
  if (message.contains("tool_calls") && message["tool_calls"].is_array())
    for (const Json& call : message["tool_calls"])
      if (call.is_object() && call.contains("function") && call["function"].is_object() &&
          call["function"].contains("arguments"))
        text += " " + text_of(call["function"]["arguments"]);
  return text;
}

}  // namespace

std::vector<std::string> request_bodies(const Deployment& deployment, const Variant& variant) {
  std::vector<std::string> bodies{deployment.request.extra};
  for (const AppliedSide& applied : applied_sides(deployment, variant)) bodies.push_back(applied.side->body);
  return bodies;
}

std::string merge_bodies(const std::vector<std::string>& bodies) {
  Json merged = Json::object();
  for (const std::string& body : bodies)
    if (const Json parsed = Json::parse(body, nullptr, false); parsed.is_object()) merged.merge_patch(parsed);
  return merged.empty() ? std::string() : merged.dump();
}

std::string request_body(const Ask& ask, const std::string& model, const RequestSpec& request,
                         const std::string& merged_body) {
  Json body = Json::object();
  if (!model.empty()) body["model"] = model;
  if (ask.messages.empty()) {
    body["prompt"] = ask.prompt;
  } else {
    body["messages"] = Json::array();
    for (const Message& m : ask.messages) body["messages"].push_back({{"role", m.role}, {"content", m.content}});
  }
  // A primer's one token stays one: what it leaves in the cache is the prompt.
  body["max_tokens"] = ask.max_tokens > 0 ? ask.max_tokens : request.answer_tokens + request.thinking_tokens;
  body["temperature"] = request.temperature;
  if (ask.ignore_eos) body["ignore_eos"] = true;
  if (!merged_body.empty()) body.merge_patch(Json::parse(merged_body));
  return body.dump();
}

Reply parse_reply(int status, const std::string& body, bool chat) {
  Reply reply;
  reply.status = status;
  if (status != 200) {
    const bool rejected = status >= 400 && status < 500 && status != 408 && status != 429;
    reply.kind = rejected ? Reply::Kind::rejected : Reply::Kind::infrastructure;
    reply.text = fmt::format("HTTP {}: {}", status, error_text(body));
    return reply;
  }
  reply.kind = Reply::Kind::unparsable;
  const Json j = Json::parse(body, nullptr, false);
  if (!j.is_object() || !j.contains("choices") || !j["choices"].is_array() || j["choices"].empty() ||
      !j["choices"][0].is_object()) {
    reply.text = error_text(body);
    return reply;
  }
  const Json& choice = j["choices"][0];
  std::optional<std::string> text;
  if (chat)
    text = chat_text(choice);
  else if (choice.contains("text") && choice["text"].is_string())
    text = choice["text"].get<std::string>();
  if (!text) {
    reply.text = error_text(body);
    return reply;
  }
  reply.kind = Reply::Kind::answered;
  reply.text = *text;
  if (choice.contains("finish_reason")) reply.finish_reason = text_of(choice["finish_reason"]);
  if (j.contains("usage")) {
    reply.prompt_tokens = integer(j["usage"], "prompt_tokens");
    if (j["usage"].is_object() && j["usage"].contains("prompt_tokens_details"))
      reply.cached_tokens = integer(j["usage"]["prompt_tokens_details"], "cached_tokens");
    if (!reply.cached_tokens) reply.cached_tokens = integer(j["usage"], "prompt_cache_hit_tokens");
  }
  return reply;
}

EndpointClient::EndpointClient(const EndpointSpec& endpoint, const std::string& url, const RequestSpec& request,
                               const std::vector<std::string>& bodies)
    : endpoint_(endpoint),
      request_(request),
      merged_body_(merge_bodies(bodies)),
      headers_(endpoint.headers),
      client_(url, kAskTimeoutS),
      model_(endpoint.model) {
  if (!endpoint.key_env.empty())
    if (const char* key = std::getenv(endpoint.key_env.c_str())) {
      keep_secret(key);
      headers_["Authorization"] = std::string("Bearer ") + key;
    }
  client_.obey_limits(endpoint.requests_per_min);
}

std::string EndpointClient::model(double timeout_s) {
  if (!model_.empty()) return model_;
  client_.set_timeout(timeout_s);
  const auto reply = client_.get("/v1/models");
  if (!reply || reply->status != 200) return {};
  const Json j = Json::parse(reply->body, nullptr, false);
  if (j.is_object() && j.contains("data") && j["data"].is_array() && !j["data"].empty() && j["data"][0].is_object() &&
      j["data"][0].contains("id"))
    model_ = text_of(j["data"][0]["id"]);
  return model_;
}

World::ServedModel EndpointClient::served_model() {
  constexpr double kTimeoutS = 5;
  World::ServedModel served{.name = model(kTimeoutS), .hash = {}};
  client_.set_timeout(kTimeoutS);
  const auto reply = client_.get("/server_info");
  if (!reply || reply->status != 200) return served;
  if (const Json j = Json::parse(reply->body, nullptr, false); j.is_object() && j.contains("model_hash"))
    served.hash = text_of(j["model_hash"]).substr(0, kMaxMessage);
  return served;
}

Reply EndpointClient::ask(const Ask& ask, double timeout_s) {
  const bool chat = !ask.messages.empty();
  const auto begin = std::chrono::steady_clock::now();
  // Half of the time at most for the name of the model, which is asked for until it is known.
  const std::string body = request_body(ask, model(timeout_s / 2), request_, merged_body_);
  client_.set_timeout(timeout_s - std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  const auto reply = client_.post(chat ? kChat : kCompletions, body, headers_);
  if (!reply) {
    Reply failed;
    failed.text = without_secrets(reply.error().message);
    return failed;
  }
  Reply parsed = parse_reply(reply->status, reply->body, chat);
  parsed.text = without_secrets(parsed.text);
  parsed.seconds = reply->seconds;
  return parsed;
}

LaunchedWorld::LaunchedWorld(const Deployment& deployment, std::filesystem::path log_folder,
                             std::function<void(const std::string&)> log, std::function<Result<void>()> surroundings)
    : deployment_(deployment),
      log_folder_(std::move(log_folder)),
      log_(std::move(log)),
      surroundings_(std::move(surroundings)) {
  CHECK(!deployment.endpoints.empty());
}

LaunchedWorld::~LaunchedWorld() = default;

tl::expected<double, LaunchFailure> LaunchedWorld::launch(const Variant& variant, std::int64_t launch_id) {
  client_.reset();
  launch_.reset();
  auto launched = launch_variant(
      deployment_, variant,
      {.log_folder = log_folder_, .launch_id = launch_id, .progress = log_, .tree = log_folder_ / "tree"});
  if (!launched) {
    const auto around = surroundings_ ? surroundings_() : Result<void>{};
    if (!around) return tl::unexpected(LaunchFailure{LaunchFailure::Kind::environment, around.error().message});
    return tl::unexpected(launched.error());
  }
  launch_ = std::move(*launched);
  turn(variant);
  // Once: a variant serves the same weights.
  if (served_model_.name.empty()) served_model_ = client_->served_model();
  return launch_->ready_s();
}

void LaunchedWorld::turn(const Variant& variant) {
  CHECK(launch_ != nullptr);
  const std::size_t asked = endpoint_of(deployment_, variant);
  client_ = std::make_unique<EndpointClient>(launch_->endpoints()[asked], launch_->urls()[asked], deployment_.request,
                                             request_bodies(deployment_, variant));
}

Reply LaunchedWorld::ask(const Ask& ask, double timeout_s) {
  CHECK(client_ != nullptr);
  return client_->ask(ask, timeout_s);
}

bool LaunchedWorld::alive(std::string& why) {
  constexpr int kLogLines = 50;
  if (launch_ != nullptr && launch_->alive()) return true;
  why = launch_ == nullptr ? "not launched" : without_secrets(launch_->last_log(kLogLines));
  return false;
}

Result<void> LaunchedWorld::stop() {
  client_.reset();
  if (launch_ == nullptr) return {};
  auto stopped = launch_->stop();
  launch_.reset();
  return stopped;
}

double LaunchedWorld::now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace plumb::investigator

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

// A content is text, or a list of parts of which those of text are read.
std::string content_of(const Json& message) {
  if (!message.contains("content")) return {};
  const Json& content = message["content"];
  if (!content.is_array()) return text_of(content);
  std::string text;
  for (const Json& part : content)
    if (part.is_object() && part.contains("text")) text += text_of(part["text"]);
  return text;
}

// Servers that take the reasoning out of the content say it under one of these names.
std::string reasoning_of(const Json& message) {
  for (const char* key : {"reasoning_content", "reasoning"})
    if (message.contains(key))
      if (std::string text = text_of(message[key]); !text.empty()) return text;
  return {};
}

// Reasoning, content, and the arguments of tool calls, of a chat message. False: there is no message.
bool read_message(const Json& choice, Reply& reply) {
  if (!choice.contains("message") || !choice["message"].is_object()) return false;
  const Json& message = choice["message"];
  const std::string content = content_of(message);
  if (const std::string reasoning = reasoning_of(message); !reasoning.empty())
    // Without content at the length limit it did not end.
    reply.text = "<think>" + reasoning + (content.empty() && reply.finish_reason == "length" ? "" : "</think>");
  reply.text += content;
  if (const std::string refusal = message.contains("refusal") ? text_of(message["refusal"]) : ""; !refusal.empty()) {
    reply.refusal = true;
    reply.text += refusal;
  }
  reply.content_end = reply.text.size();
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return true;
  for (const Json& call : message["tool_calls"])
    if (call.is_object() && call.contains("function") && call["function"].is_object()) {
      const Json& function = call["function"];
      const auto field = [&](const char* key) { return function.contains(key) ? function[key] : Json(); };
      // Some servers send the arguments as an object.
      const Json arguments = field("arguments");
      reply.calls.push_back({text_of(field("name")), arguments.is_object() ? arguments.dump() : text_of(arguments)});
      reply.text += " " + reply.calls.back().arguments;
    }
  return true;
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
    for (const Message& m : ask.messages) {
      Json message{{"role", m.role}, {"content", m.content}};
      if (!m.more.empty()) message.merge_patch(Json::parse(m.more));
      body["messages"].push_back(std::move(message));
    }
  }
  // A primer's one token stays one: what it leaves in the cache is the prompt.
  body["max_tokens"] = ask.max_tokens > 0 ? ask.max_tokens : request.answer_tokens + request.thinking_tokens;
  body["temperature"] = request.temperature;
  if (ask.ignore_eos) body["ignore_eos"] = true;
  for (const std::string* more : {&merged_body, &ask.body})
    if (!more->empty()) body.merge_patch(Json::parse(*more));
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
  if (choice.contains("finish_reason")) reply.finish_reason = text_of(choice["finish_reason"]);
  const bool text = choice.contains("text") && choice["text"].is_string();
  if (chat ? !read_message(choice, reply) : !text) {
    reply.text = error_text(body);
    return reply;
  }
  if (!chat) reply.text = choice["text"].get<std::string>();
  reply.kind = Reply::Kind::answered;
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

tl::expected<HttpReply, std::string> EndpointClient::post(bool chat,
                                                          const std::function<std::string(const std::string&)>& body,
                                                          double timeout_s) {
  const auto begin = std::chrono::steady_clock::now();
  // Half of the time at most for the name of the model, which is asked for until it is known.
  const std::string text = body(model(timeout_s / 2));
  client_.set_timeout(timeout_s - std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  auto reply = client_.post(chat ? kChat : kCompletions, text, headers_);
  if (!reply) return tl::unexpected(without_secrets(reply.error().message));
  return std::move(*reply);
}

Reply EndpointClient::ask(const Ask& ask, double timeout_s) {
  const bool chat = !ask.messages.empty();
  const auto reply =
      post(chat, [&](const std::string& model) { return request_body(ask, model, request_, merged_body_); }, timeout_s);
  if (!reply) {
    Reply failed;
    failed.text = reply.error();
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

Scores LaunchedWorld::score(const ScoreAsk& ask, double timeout_s) {
  CHECK(client_ != nullptr);
  return client_->score(ask, timeout_s);
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

#include "investigator/readiness.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>

#include <nlohmann/json.hpp>

#include "investigator/http_client.h"
#include "investigator/log_tail.h"

namespace plumb::investigator {
namespace {

constexpr std::size_t kMaxReplyBytes = 1u << 20;
constexpr std::size_t kShownReplyBytes = 300;
constexpr char kPrompt[] = "hello";

std::string shown(const std::string& call, const tl::expected<HttpReply, HttpFailure>& reply) {
  if (!reply) return call + " failed: " + printable(reply.error().message, kShownReplyBytes);
  return fmt::format("{} answered {}: {}", call, reply->status,
                     reply->body.empty() ? "(empty)" : printable(reply->body, kShownReplyBytes));
}

bool refuses(const tl::expected<HttpReply, HttpFailure>& reply) {
  constexpr std::array kMayPass{408, 425, 429};
  return reply && reply->status >= 400 && reply->status < 500 &&
         std::find(kMayPass.begin(), kMayPass.end(), reply->status) == kMayPass.end();
}

nlohmann::json parsed(const std::string& body) { return nlohmann::json::parse(body, nullptr, false); }

// What `/v1/models` calls its first model, or an answer that says why that is unknown.
tl::expected<std::string, Answer> first_model(HttpClient& client) {
  const auto reply = client.get("/v1/models");
  if (reply && reply->status == 200) {
    const nlohmann::json models = parsed(reply->body);
    if (models.is_object() && models.contains("data") && models["data"].is_array() && !models["data"].empty()) {
      const nlohmann::json& first = models["data"][0];
      if (first.is_object() && first.contains("id") && first["id"].is_string()) return first["id"].get<std::string>();
    }
    return tl::unexpected(Answer{false, shown("GET /v1/models", reply) + " (no data[0].id: set the endpoint's model)"});
  }
  return tl::unexpected(Answer{false, shown("GET /v1/models", reply), refuses(reply)});
}

std::map<std::string, std::string> headers_of(const EndpointSpec& endpoint) {
  std::map<std::string, std::string> headers = endpoint.headers;
  if (const char* key = endpoint.key_env.empty() ? nullptr : std::getenv(endpoint.key_env.c_str()); key != nullptr)
    headers["Authorization"] = std::string("Bearer ") + key;
  return headers;
}

bool has_choice(const nlohmann::json& reply, bool chat) {
  if (!reply.is_object() || !reply.contains("choices") || !reply["choices"].is_array() || reply["choices"].empty())
    return false;
  const nlohmann::json& choice = reply["choices"][0];
  if (!choice.is_object()) return false;
  return chat ? choice.contains("message") && choice["message"].is_object()
              : choice.contains("text") && choice["text"].is_string();
}

}  // namespace

Answer ask_health(const std::string& url, const std::string& path, double timeout_s) {
  HttpClient client(url, timeout_s, kMaxReplyBytes);
  const auto reply = client.get(path);
  return {reply && reply->status == 200, shown("GET " + path, reply), refuses(reply)};
}

Answer ask_generation(const std::string& url, const EndpointSpec& endpoint, double temperature, double timeout_s) {
  HttpClient client(url, timeout_s, kMaxReplyBytes);
  std::string model = endpoint.model;
  if (model.empty()) {
    const auto first = first_model(client);
    if (!first) return first.error();
    model = *first;
  }
  const bool chat = endpoint.api == "chat";
  nlohmann::json request{{"model", model}, {"max_tokens", 1}, {"temperature", temperature}};
  if (chat)
    request["messages"] = nlohmann::json::array({nlohmann::json{{"role", "user"}, {"content", kPrompt}}});
  else
    request["prompt"] = kPrompt;
  const std::string path = chat ? "/v1/chat/completions" : "/v1/completions";
  const auto reply = client.post(path, request.dump(), headers_of(endpoint));
  const std::string what = shown("POST " + path, reply);
  if (!reply || reply->status != 200) return {false, what, refuses(reply)};
  if (!has_choice(parsed(reply->body), chat)) return {false, what + " (no choice in it)"};
  return {true, what};
}

}  // namespace plumb::investigator

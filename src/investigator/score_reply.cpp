#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "investigator/investigate.h"
#include "investigator/scores.h"
#include "investigator/secrets.h"
#include "investigator/world.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

// A list or object of this name, or an empty one.
const Json& part(const Json& object, const char* key) {
  static const Json kNothing;
  return object.is_object() && object.contains(key) ? object[key] : kNothing;
}

double log_probability(const Json& value) {
  if (!value.is_number()) return kLeastLogProbability;
  const double number = value.get<double>();
  // Rounding may lift a certain token a little above 0.
  return std::isfinite(number) ? std::clamp(number, kLeastLogProbability, 0.0) : kLeastLogProbability;
}

std::string token_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// The tokens of a reply in order; nullopt: there are none that can be read.
std::optional<std::vector<GeneratedToken>> tokens_of(const Json& logprobs) {
  std::vector<GeneratedToken> tokens;
  if (const Json& content = part(logprobs, "content"); content.is_array()) {
    for (const Json& entry : content) {
      GeneratedToken t{{token_text(part(entry, "token")), log_probability(part(entry, "logprob"))}, {}};
      for (const Json& listed : part(entry, "top_logprobs"))
        t.list.push_back({token_text(part(listed, "token")), log_probability(part(listed, "logprob"))});
      tokens.push_back(std::move(t));
    }
    return tokens;
  }
  const Json& values = part(logprobs, "token_logprobs");
  const Json& texts = part(logprobs, "tokens");
  const Json& lists = part(logprobs, "top_logprobs");
  if (!values.is_array() || !texts.is_array() || values.size() != texts.size()) return std::nullopt;
  for (std::size_t i = 0; i < values.size(); ++i) {
    GeneratedToken t{{token_text(texts[i]), log_probability(values[i])}, {}};
    if (lists.is_array() && i < lists.size() && lists[i].is_object())
      for (const auto& [text, value] : lists[i].items()) t.list.push_back({text, log_probability(value)});
    std::sort(t.list.begin(), t.list.end(), [](const ListedToken& a, const ListedToken& b) {
      return a.log_probability != b.log_probability ? a.log_probability > b.log_probability : a.text < b.text;
    });
    tokens.push_back(std::move(t));
  }
  return tokens;
}

void keep_scored(Scores& scores, std::vector<GeneratedToken> tokens, const Json& usage) {
  const Json& completion = part(usage, "completion_tokens");
  const std::size_t generated = completion.is_number_unsigned() ? completion.get<std::size_t>() : 1;
  tokens.resize(tokens.size() - std::min(tokens.size(), generated));
  // Nothing predicts the first token; two are the least that can be compared.
  if (tokens.size() < 2) {
    scores.status = Scores::Status::not_offered;
    scores.message = "no log-probabilities of the prompt";
    return;
  }
  std::string texts;
  for (const GeneratedToken& t : tokens) texts += fmt::format("{}:{}", t.chosen.text.size(), t.chosen.text);
  scores.tokens_hash = hash_text(texts);
  for (std::size_t i = 1; i < tokens.size(); ++i) scores.log_probabilities.push_back(tokens[i].chosen.log_probability);
}

}  // namespace

Scores parse_scores(int status, const std::string& body, ScorePath path) {
  Scores scores;
  // What the probes read of a reply holds here too; whose API answered shows in its form.
  Reply reply = parse_reply(status, body, false);
  if (reply.kind == Reply::Kind::unparsable) reply = parse_reply(status, body, true);
  scores.prompt_tokens = reply.prompt_tokens;
  scores.cached_tokens = reply.cached_tokens;
  if (reply.kind != Reply::Kind::answered) {
    scores.status =
        reply.kind == Reply::Kind::infrastructure ? Scores::Status::unanswered : Scores::Status::not_offered;
    scores.message = reply.text;
    return scores;
  }
  const Json json = Json::parse(body);
  auto tokens = tokens_of(part(json["choices"][0], "logprobs"));
  if (!tokens || tokens->empty()) {
    scores.status = Scores::Status::not_offered;
    scores.message = "no log-probabilities in the reply";
    return scores;
  }
  scores.status = Scores::Status::measured;
  if (path == ScorePath::scored)
    keep_scored(scores, std::move(*tokens), part(json, "usage"));
  else
    scores.generated = std::move(*tokens);
  return scores;
}

std::string score_body(const ScoreAsk& ask, const std::string& model, const RequestSpec& request,
                       const std::string& merged_body) {
  constexpr int kListed = 5;  // the most that OpenAI's completions list
  Json body = Json::object();
  if (!model.empty()) body["model"] = model;
  if (ask.messages.empty()) {
    body["prompt"] = ask.prompt;
    body["logprobs"] = ask.path == ScorePath::scored ? 1 : kListed;
    if (ask.path == ScorePath::scored) body["echo"] = true;
  } else {
    body["messages"] = Json::array();
    for (const Message& m : ask.messages) body["messages"].push_back({{"role", m.role}, {"content", m.content}});
    body["logprobs"] = true;
    body["top_logprobs"] = kListed;
  }
  body["max_tokens"] = ask.max_tokens;
  body["temperature"] = request.temperature;
  if (!merged_body.empty()) body.merge_patch(Json::parse(merged_body));
  return body.dump();
}

Scores EndpointClient::score(const ScoreAsk& ask, double timeout_s) {
  const bool chat = !ask.messages.empty();
  const auto reply =
      post(chat, [&](const std::string& model) { return score_body(ask, model, request_, merged_body_); }, timeout_s);
  if (!reply) return {.message = reply.error()};
  Scores scores = parse_scores(reply->status, reply->body, ask.path);
  scores.message = without_secrets(scores.message);
  scores.seconds = reply->seconds;
  return scores;
}

}  // namespace plumb::investigator

#include "server/token_texts.h"

#include <cmath>
#include <iterator>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/api.h"

namespace plumb::server {
namespace {

void comma(std::string& list) {
  if (!list.empty()) list += ',';
}

void append_number(std::string& out, std::int64_t value) { fmt::format_to(std::back_inserter(out), "{}", value); }

std::string array(std::string& list) { return '[' + std::exchange(list, {}) + ']'; }

// Well-formed parts pass through JSON unchanged; what is not is replaced or left out, which differs.
bool is_utf8(const std::string& text) {
  const nlohmann::json json = text;
  using Handler = nlohmann::json::error_handler_t;
  return json.dump(-1, ' ', false, Handler::replace) == json.dump(-1, ' ', false, Handler::ignore);
}

// Every byte, as OpenAI's API writes a token that is no text by itself: bytes:\xe6\xbc
std::string escaped(const std::string& bytes) {
  std::string out = "bytes:";
  for (const char byte : bytes) fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

}  // namespace

TokenTexts::TokenTexts(const Encoding& encoding) {
  const auto size = static_cast<std::size_t>(encoding.vocab_size());
  std::unordered_set<std::string> taken;
  for (std::size_t i = 0; i < size; ++i) {
    bytes_.push_back(encoding.token_bytes(static_cast<std::int32_t>(i)));
    std::string text = json_quote(bytes_.back());
    if (!is_utf8(bytes_.back())) text = json_quote(escaped(bytes_.back()));
    if (!taken.insert(text).second) {
      text = fmt::format("\"token_id:{}\"", i);
      taken.insert(text);
    }
    quoted_.push_back(std::move(text));
  }
}

void append_logprob(std::string& out, float value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), "{}", static_cast<double>(value));
  else
    out += "null";
}

void CompletionLogprobs::append_token(std::int32_t id, std::size_t text_offset) {
  for (std::string* list : {&tokens_, &token_logprobs_, &top_, &offsets_, &ids_, &top_ids_}) comma(*list);
  tokens_ += texts_->quoted(id);
  append_number(offsets_, static_cast<std::int64_t>(text_offset));
  append_number(ids_, id);
}

void CompletionLogprobs::append_unscored(std::int32_t id, std::size_t text_offset) {
  append_token(id, text_offset);
  token_logprobs_ += "null";
  top_ += "null";
  top_ids_ += "null";
}

void CompletionLogprobs::append(const TokenScore& score, std::size_t text_offset) {
  append_token(score.id, text_offset);
  append_logprob(token_logprobs_, score.logprob);

  std::unordered_set<std::int32_t> shown;
  std::string map;
  const auto add = [&](std::int32_t id, float logprob) {
    if (!shown.insert(id).second) return;
    comma(map);
    map += texts_->quoted(id);
    map += ':';
    append_logprob(map, logprob);
  };
  std::string pairs;
  for (const auto& [id, logprob] : score.top) {
    add(id, logprob);
    comma(pairs);
    pairs += '[';
    append_number(pairs, id);
    pairs += ',';
    append_logprob(pairs, logprob);
    pairs += ']';
  }
  add(score.id, score.logprob);
  top_ += '{' + map + '}';
  top_ids_ += '[' + pairs + ']';
}

std::string CompletionLogprobs::take() {
  return R"({"tokens":)" + array(tokens_) + R"(,"token_logprobs":)" + array(token_logprobs_) + R"(,"top_logprobs":)" +
         array(top_) + R"(,"text_offset":)" + array(offsets_) + R"(,"token_ids":)" + array(ids_) +
         R"(,"top_logprob_ids":)" + array(top_ids_) + '}';
}

void ChatLogprobs::append_entry(std::int32_t id, float logprob) {
  content_ += R"({"token":)" + texts_->quoted(id) + R"(,"token_id":)";
  append_number(content_, id);
  std::string bytes;
  for (const char byte : texts_->bytes(id)) {
    comma(bytes);
    append_number(bytes, static_cast<unsigned char>(byte));
  }
  content_ += R"(,"bytes":[)" + bytes + R"(],"logprob":)";
  append_logprob(content_, logprob);
}

void ChatLogprobs::append(const TokenScore& score) {
  comma(content_);
  append_entry(score.id, score.logprob);
  content_ += R"(,"top_logprobs":[)";
  bool first = true;
  for (const auto& [id, logprob] : score.top) {
    if (!std::exchange(first, false)) content_ += ',';
    append_entry(id, logprob);
    content_ += '}';
  }
  content_ += "]}";
}

std::string ChatLogprobs::take() { return R"({"content":[)" + std::exchange(content_, {}) + "]}"; }

}  // namespace plumb::server

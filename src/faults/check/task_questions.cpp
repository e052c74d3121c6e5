#include "faults/check/task_questions.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "server/api.h"
#include "tensor/gzip.h"

namespace plumb::faults {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostBytes = 64 << 20;

Result<Question> question_of(const json& request, const json& answer, const Encoding& encoding) {
  const auto at = answer.at("message").get<std::ptrdiff_t>();
  json body = request;
  auto& messages = body.at("messages").get_ref<json::array_t&>();
  if (at < 1 || at > static_cast<std::ptrdiff_t>(messages.size()))
    return error("answer {} is of no message of its conversation", at);
  messages.resize(static_cast<std::size_t>(at));
  server::ApiLimits limits;
  limits.settings = Settings::defaults();
  limits.part_separator = encoding.part_separator();
  auto parsed = server::parse_chat_request(body.dump(), limits);
  if (!parsed) return error("{}", parsed.error().message);
  const auto prompt = encoding.lay_out(parsed->conversation);
  if (!prompt) return tl::unexpected(prompt.error());
  return Question{.chat = std::move(parsed->conversation),
                  .prompt = prompt_ids(**prompt),
                  .answer = encoding.encode(answer.at("text").get<std::string>())};
}

Result<TaskConversation> conversation_of(const json& entry, const Encoding& encoding) {
  TaskConversation conversation{.task = entry.at("task").get<std::string>(), .questions = {}};
  for (const json& answer : entry.at("answers")) {
    auto question = question_of(entry.at("request"), answer, encoding);
    if (!question) return tl::unexpected(question.error());
    conversation.questions.push_back(std::move(*question));
  }
  if (conversation.questions.empty()) return error("a conversation of task {} asks nothing", conversation.task);
  return conversation;
}

Result<std::vector<TaskLength>> lengths_of(const json& document, const Encoding& encoding) {
  std::vector<TaskLength> lengths;
  const auto group = document.at("group").get<std::size_t>();
  for (const json& entry : document.at("lengths")) {
    TaskLength length{.tokens = entry.at("tokens").get<std::int64_t>(), .group = group, .conversations = {}};
    for (const json& written : entry.at("conversations")) {
      auto conversation = conversation_of(written, encoding);
      if (!conversation) return tl::unexpected(conversation.error());
      length.conversations.push_back(std::move(*conversation));
    }
    if (group == 0 || length.conversations.empty() || length.conversations.size() % group != 0 ||
        (!lengths.empty() && lengths.back().tokens >= length.tokens))
      return error("length {}: {} conversations do not make groups of {}, or lengths do not ascend", length.tokens,
                   length.conversations.size(), group);
    lengths.push_back(std::move(length));
  }
  return lengths;
}

}  // namespace

Result<std::vector<TaskLength>> read_task_questions(const std::filesystem::path& file, const Encoding& encoding) {
  const auto text = read_gzip(file, kMostBytes);
  if (!text) return error("{}; phantom/write_questions.py writes it", text.error().message);
  try {
    auto lengths = lengths_of(json::parse(*text), encoding);
    if (!lengths) return error("{}: {}", file.string(), lengths.error().message);
    return lengths;
  } catch (const json::exception& e) {
    return error("{}: {}; phantom/write_questions.py writes it", file.string(), e.what());
  }
}

std::filesystem::path task_questions_file(const std::filesystem::path& home) {
  return home / "phantom" / "questions.json.gz";
}

}  // namespace plumb::faults

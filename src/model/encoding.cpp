#include "model/encoding.h"

#include <utility>

#include <fmt/format.h>

#include "model/config.h"

namespace plumb {

Result<std::vector<std::int32_t>> Encoding::encode_infill(std::string_view, std::string_view) const {
  return error("this model has no form for what stands between a prefix and a suffix");
}

Result<std::vector<std::int32_t>> Encoding::render_chat(std::span<const ChatMessage> messages) const {
  Conversation conversation;
  conversation.messages.assign(messages.begin(), messages.end());
  const auto prompt = lay_out(std::move(conversation));
  if (!prompt) return tl::unexpected(prompt.error());
  return prompt_ids(**prompt);
}

std::vector<std::int32_t> prompt_ids(const ChatPrompt& prompt) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < prompt.stretch_count(); ++i) prompt.append_ids(i, ids);
  return ids;
}

Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder, const ModelConfig& config) {
  auto encoding = load_encoding(folder);
  if (!encoding) return encoding;
  struct Pair {
    const char* what;
    std::int64_t vocabulary, config;
  };
  const Encoding& loaded = **encoding;
  for (const Pair& pair :
       {Pair{"vocabulary size", loaded.vocab_size(), config.vocab_size}, Pair{"bos", loaded.bos(), config.bos_token_id},
        Pair{"eos", loaded.eos(), config.eos_token_id}})
    if (pair.vocabulary != pair.config)
      return error("{}: {} is {} in tokenizer.json, but {} in config.json", folder.string(), pair.what, pair.vocabulary,
                   pair.config);
  return encoding;
}

}  // namespace plumb

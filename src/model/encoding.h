#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/chat.h"

namespace plumb {

struct ModelConfig;

/// Text <-> ids of one checkpoint, and its chat form. Lossless on any bytes: the token_bytes of encode(text), joined,
/// are text.
class Encoding {
 public:
  virtual ~Encoding() = default;
  /// Ids of any bytes; the text of a special token becomes its id.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The exact bytes of a token in [0, vocab_size); a special token's are its text, an unused id has none.
  virtual std::string token_bytes(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  /// Ids of the prompt, ending with the assistant's marker. Control strings inside contents become plain bytes, except
  /// for the call markers of an assistant. Errors: no messages, an unknown role.
  virtual Result<std::vector<std::int32_t>> render_chat(std::span<const ChatMessage> messages) const = 0;
  virtual std::int32_t eos() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int32_t bos() const = 0;
};

/// The encoding that `folder`/vocab.json describes. Errors: no such file, an unknown profile, a vocabulary that its
/// profile cannot use.
Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder);

/// Same, held against the config of the same checkpoint. Errors: also another vocabulary size, bos or eos than
/// `config`'s.
Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace plumb

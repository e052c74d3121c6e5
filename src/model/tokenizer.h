#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plumb {

/// What becomes of the text of an added token inside a text.
enum class Specials {
  parse,  // its id
  plain,  // ids of its bytes, as of any other text
};

/// The tokenizer of a DeepSeek-V3 or V4 checkpoint, from its tokenizer.json: byte-level BPE behind DeepSeek's
/// pre-tokenizer. The same ids as Hugging Face's tokenizers gives without special tokens of its own (no BOS is added),
/// and lossless on any bytes: the token_bytes of encode(bytes), joined, are bytes. A byte that is no part of
/// well-formed UTF-8 counts as a control character. Values are immutable and may be used by many threads.
///
/// A special token is an entry of added_tokens, whatever its `special` flag says (which is false for <think> and the
/// turn markers). Plain text never gives a special token's id.
class Tokenizer {
 public:
  /// Reads `tokenizer_json`. Errors: no such file, no JSON, a part whose meaning is not known here (another normalizer,
  /// pre-tokenizer, decoder, model or option), a vocabulary that contradicts itself or lacks one of the 256 bytes.
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);
  /// Same, from the text of the file; `where` starts every message.
  static Result<Tokenizer> parse(std::string_view json, const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of any bytes. O(n log n) in the longest run without a cut of the pre-tokenizer, else linear.
  std::vector<std::int32_t> encode(std::string_view bytes, Specials specials) const;
  /// The exact bytes of a token in [0, vocab_size); a special token's are its text, an unused id has none.
  std::string token_bytes(std::int32_t id) const;
  /// Whether an id in [0, vocab_size) is a special token.
  bool is_special(std::int32_t id) const;
  /// The special token with this text, else the token with these bytes.
  std::optional<std::int32_t> id_of(std::string_view token_text) const;
  /// One more than the highest id.
  std::int64_t vocab_size() const;

 private:
  struct Tables;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);
  std::unique_ptr<const Tables> tables_;
};

}  // namespace plumb

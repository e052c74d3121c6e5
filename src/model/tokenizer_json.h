#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/bpe.h"

namespace plumb {

/// One entry of added_tokens.
struct AddedToken {
  std::int32_t id;
  std::string text;
  bool normalized;  // looked for only in what the others leave
};

/// What a tokenizer.json says, checked: what Bpe and AddedTokens need, and no two tokens with one id.
struct TokenizerTables {
  std::vector<std::string> vocabulary;  // bytes by id; empty: unused, or an added token
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
};

/// Reads the text of a tokenizer.json. Errors: see Tokenizer::load.
Result<TokenizerTables> read_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace plumb

#include "model/tokenizer.h"

#include <unordered_map>

#include "base/check.h"
#include "base/durable_file.h"
#include "model/added_tokens.h"
#include "model/bpe.h"
#include "model/pre_tokenizer.h"
#include "model/tokenizer_json.h"

namespace plumb {
namespace {

AddedTokens added_tokens(const std::vector<AddedToken>& added, bool normalized) {
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  for (const AddedToken& token : added)
    if (token.normalized == normalized) tokens.emplace_back(token.text, token.id);
  return AddedTokens(std::move(tokens));
}

}  // namespace

struct Tokenizer::Tables {
  Bpe bpe;
  // Hugging Face cuts the first kind out of the whole text, the second out of what is left. The order matters only
  // where tokens of both kinds overlap.
  AddedTokens first, second;
  std::unordered_map<std::int32_t, std::string> added;
  std::int64_t size;
};

namespace {

/// One text on its way to ids.
class Encoder {
 public:
  Encoder(const Bpe& bpe, const AddedTokens* first, const AddedTokens* second)
      : bpe_(bpe), levels_{first, second, nullptr} {}

  /// Appends the ids of `bytes`, cutting out the added tokens of levels_[level] and later.
  void append(std::string_view bytes, std::size_t level) {
    if (levels_[level] == nullptr) return append_plain(bytes);
    for (std::size_t at = 0; at < bytes.size();) {
      const auto match = levels_[level]->find(bytes, at);
      append(bytes.substr(at, match.at - at), level + 1);
      if (match.size > 0) ids_.push_back(match.id);
      at = match.at + match.size;
    }
  }
  std::vector<std::int32_t> take() { return std::move(ids_); }

 private:
  void append_plain(std::string_view bytes) {
    PreTokenizer pieces(bytes);
    for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next())
      bpe_.append_ids(piece, scratch_, ids_);
  }

  const Bpe& bpe_;
  const AddedTokens* levels_[3];
  Bpe::Scratch scratch_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const auto text = read_file(tokenizer_json);
  if (!text) return tl::unexpected(text.error());
  return parse(*text, tokenizer_json.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& where) {
  auto file = read_tokenizer_json(json, where);
  if (!file) return tl::unexpected(file.error());
  std::unordered_map<std::int32_t, std::string> by_id;
  for (const AddedToken& token : file->added) by_id.emplace(token.id, token.text);
  const auto size = static_cast<std::int64_t>(file->vocabulary.size());
  return Tokenizer(std::unique_ptr<const Tables>(new Tables{Bpe(std::move(file->vocabulary), file->merges),
                                                            added_tokens(file->added, false),
                                                            added_tokens(file->added, true), std::move(by_id), size}));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view bytes, Specials specials) const {
  const bool parse = specials == Specials::parse;
  Encoder encoder(tables_->bpe, parse ? &tables_->first : nullptr, parse ? &tables_->second : nullptr);
  encoder.append(bytes, 0);
  return encoder.take();
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
  CHECK(id >= 0 && id < tables_->size);
  const auto added = tables_->added.find(id);
  return added != tables_->added.end() ? added->second : tables_->bpe.bytes(id);
}

bool Tokenizer::is_special(std::int32_t id) const {
  CHECK(id >= 0 && id < tables_->size);
  return tables_->added.contains(id);
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token_text) const {
  for (const std::int32_t id :
       {tables_->first.id_of(token_text), tables_->second.id_of(token_text), tables_->bpe.find(token_text)})
    if (id >= 0) return id;
  return std::nullopt;
}

std::int64_t Tokenizer::vocab_size() const { return tables_->size; }

}  // namespace plumb

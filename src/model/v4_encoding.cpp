#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/durable_file.h"
#include "model/encoding.h"
#include "model/tokenizer.h"
#include "model/v4_chat.h"
#include "model/v4_parser.h"
#include "model/v4_rules.h"

namespace plumb {
namespace {

// Without one of these no conversation can be written.
constexpr std::string_view kNeeded[] = {v4::kBos,   v4::kEos,      v4::kUser, v4::kAssistant,
                                        v4::kThink, v4::kEndThink, v4::kDsml};

class V4Encoding final : public Encoding {
 public:
  V4Encoding(Tokenizer tokenizer, V4Profile profile)
      : tokenizer_(std::move(tokenizer)), profile_(profile), bos_(id(v4::kBos)), eos_(id(v4::kEos)) {}

  std::vector<std::int32_t> encode(std::string_view text) const override {
    return tokenizer_.encode(text, Specials::parse);
  }
  std::string token_bytes(std::int32_t token) const override { return tokenizer_.token_bytes(token); }
  bool is_special(std::int32_t token) const override { return tokenizer_.is_special(token); }
  std::int32_t eos() const override { return eos_; }
  std::int32_t bos() const override { return bos_; }
  std::int64_t vocab_size() const override { return tokenizer_.vocab_size(); }

  Result<std::unique_ptr<ChatPrompt>> lay_out(Conversation conversation) const override;
  std::string_view part_separator() const override { return "\n\n"; }

  std::vector<std::int32_t> encode_prompt(std::string_view text) const override {
    std::vector<std::int32_t> ids = encode(text);
    if (ids.empty() || ids.front() != bos_) ids.insert(ids.begin(), bos_);
    return ids;
  }

  // The layout of DeepSeek's earlier models; V4's encoder has none of its own.
  Result<std::vector<std::int32_t>> encode_infill(std::string_view prefix, std::string_view suffix) const override {
    const auto begin = tokenizer_.id_of(v4::kFimBegin), hole = tokenizer_.id_of(v4::kFimHole),
               end = tokenizer_.id_of(v4::kFimEnd);
    if (!begin || !hole || !end) return Encoding::encode_infill(prefix, suffix);
    std::vector<std::int32_t> ids{bos_, *begin};
    append_plain(prefix, ids);
    ids.push_back(*hole);
    append_plain(suffix, ids);
    ids.push_back(*end);
    return ids;
  }

  std::vector<std::int32_t> never_in_answers() const override {
    std::vector<std::int32_t> ids;
    for (const std::string_view token : {v4::kBos, v4::kUser, v4::kAssistant, v4::kPad})
      if (const auto known = tokenizer_.id_of(token)) ids.push_back(*known);
    return ids;
  }

  bool is_read_in_answers(std::int32_t token) const override {
    return std::find(std::begin(read_), std::end(read_), token) != std::end(read_);
  }

  /// The ids of pieces. `literal`: only control pieces are control tokens; else whatever has the text of one, as the
  /// reference tokenises the joined text.
  void append_pieces(const std::vector<TextPiece>& pieces, bool literal, std::vector<std::int32_t>& ids) const {
    if (literal) {
      for (const TextPiece& piece : pieces) {
        if (piece.control)
          ids.push_back(id(piece.text));
        else
          append_plain(piece.text, ids);
      }
      return;
    }
    std::string text;
    for (const TextPiece& piece : pieces) text += piece.text;
    const std::vector<std::int32_t> more = encode(text);
    ids.insert(ids.end(), more.begin(), more.end());
  }

  bool knows(std::string_view control) const {
    const auto known = tokenizer_.id_of(control);
    return known && tokenizer_.is_special(*known);
  }

 private:
  std::int32_t id(std::string_view control) const {
    const auto known = tokenizer_.id_of(control);
    CHECK(known.has_value());
    return *known;
  }
  void append_plain(std::string_view text, std::vector<std::int32_t>& ids) const {
    const std::vector<std::int32_t> more = tokenizer_.encode(text, Specials::plain);
    ids.insert(ids.end(), more.begin(), more.end());
  }

  const Tokenizer tokenizer_;
  const V4Profile profile_;
  const std::int32_t bos_, eos_;
  const std::int32_t read_[3] = {id(v4::kThink), id(v4::kEndThink), id(v4::kDsml)};
};

void append_field(std::string& key, std::string_view text) {
  key += fmt::format("{}:", text.size());
  key += text;
}

void append_turn_key(const V4Turn& turn, std::string& key) {
  key += fmt::format("[{}{}{}{}{}{}{}", static_cast<int>(turn.kind), turn.bos, turn.thinking_part, turn.open_reasoning,
                     turn.without_eos, turn.asks_assistant, turn.opens_thinking);
  append_field(key, turn.head);
  append_field(key, turn.task);
  if (turn.kind == V4Turn::Kind::user) {
    for (const V4Turn::Block& block : turn.blocks) {
      key += block.tool_result ? 'r' : 't';
      append_field(key, *block.text);
    }
    return;
  }
  const ChatMessage& message = *turn.message;
  append_field(key, message.content);
  append_field(key, message.reasoning_content.value_or(""));
  append_field(key, message.response_format);
  for (const ChatTool& tool : message.tools) append_field(key += 'f', tool.function);
  for (const ToolCall& call : message.tool_calls) {
    append_field(key += 'c', call.name);
    append_field(key, call.arguments);
  }
}

// The turns of one prompt, and which of them make a stretch.
class V4Prompt final : public ChatPrompt {
 public:
  V4Prompt(const V4Encoding& encoding, bool literal, ToolChoice choice, V4Conversation prepared,
           std::vector<ChatTool> tools)
      : encoding_(encoding),
        literal_(literal),
        tools_active_(!tools.empty() && choice != ToolChoice::none),
        tools_(std::move(tools)),
        prepared_(std::move(prepared)) {
    for (const TextPiece& piece : prepared_.forced) answer_start_ += piece.text;
    if (prepared_.options.thinking) effort_ = v4_effort_name(prepared_.options.effort);
    warnings_ = prepared_.warnings;
  }

  /// Call once, when the prompt is where it stays: the turns refer to it.
  Result<void> arrange() {
    auto turns = arrange_v4(prepared_.messages, prepared_.options);
    if (!turns) return tl::unexpected(turns.error());
    turns_ = std::move(*turns);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const V4Turn& turn = turns_[i];
      for (const std::string_view token :
           {turn.kind == V4Turn::Kind::latest_reminder ? v4::kLatestReminder : std::string_view(),
            v4_task_token(turn.task)})
        if (!token.empty() && !encoding_.knows(token))
          return error("this checkpoint's tokenizer has no token {}", token);
      if (i == 0 || begins_with_control(turn) || ends_with_control(turns_[i - 1])) stretches_.push_back(i);
    }
    return {};
  }

  std::size_t stretch_count() const override { return stretches_.size() + (prepared_.forced.empty() ? 0 : 1); }
  std::string key(std::size_t stretch) const override {
    if (stretch == stretches_.size()) return "+" + answer_start_;
    std::string out = literal_ ? "l" : "r";
    for (std::size_t i = stretches_[stretch]; i < end_of(stretch); ++i) append_turn_key(turns_[i], out);
    return out;
  }
  void append_ids(std::size_t stretch, std::vector<std::int32_t>& ids) const override {
    if (stretch == stretches_.size()) return encoding_.append_pieces(prepared_.forced, literal_, ids);
    std::vector<TextPiece> pieces;
    for (std::size_t i = stretches_[stretch]; i < end_of(stretch); ++i) append_v4_turn(turns_[i], pieces);
    encoding_.append_pieces(pieces, literal_, ids);
  }
  std::string role(std::size_t stretch) const override {
    constexpr const char* kNames[] = {"system", "developer", "user", "latest_reminder", "assistant"};
    if (stretch == stretches_.size()) return "assistant";
    std::string out;
    for (std::size_t i = stretches_[stretch]; i < end_of(stretch); ++i)
      out += (out.empty() ? "" : "+") + std::string(kNames[static_cast<int>(turns_[i].kind)]);
    return out;
  }
  std::unique_ptr<ReplyParser> reply_parser(ReplyOptions asked) const override {
    asked.tools = tools_;
    asked.tools_active = tools_active_;
    return v4_reply_parser(std::move(asked), prepared_.opens_reasoning);
  }

 private:
  static bool begins_with_control(const V4Turn& turn) {
    return turn.kind != V4Turn::Kind::system && turn.kind != V4Turn::Kind::assistant;
  }
  static bool ends_with_control(const V4Turn& turn) {
    return turn.asks_assistant || (turn.kind == V4Turn::Kind::assistant && !turn.without_eos);
  }
  std::size_t end_of(std::size_t stretch) const {
    return stretch + 1 < stretches_.size() ? stretches_[stretch + 1] : turns_.size();
  }

  const V4Encoding& encoding_;
  const bool literal_;
  const bool tools_active_;
  const std::vector<ChatTool> tools_;
  const V4Conversation prepared_;
  std::vector<V4Turn> turns_;
  std::vector<std::size_t> stretches_;  // the first turn of each
};

Result<std::unique_ptr<ChatPrompt>> V4Encoding::lay_out(Conversation conversation) const {
  std::vector<ChatTool> tools = conversation.tools;
  for (const ChatMessage& message : conversation.messages)
    tools.insert(tools.end(), message.tools.begin(), message.tools.end());
  const bool literal = conversation.literal_specials;
  const ToolChoice choice = conversation.tool_choice;
  auto prepared = prepare_v4(std::move(conversation), profile_);
  if (!prepared) return tl::unexpected(prepared.error());
  auto prompt = std::make_unique<V4Prompt>(*this, literal, choice, std::move(*prepared), std::move(tools));
  if (const auto good = prompt->arrange(); !good) return tl::unexpected(good.error());
  return prompt;
}

}  // namespace

Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder) {
  if (const auto there = check_folder(folder); !there) return tl::unexpected(there.error());
  const auto profile = detect_v4_profile(folder);
  if (!profile) return tl::unexpected(profile.error());
  const std::filesystem::path path = folder / "tokenizer.json";
  auto tokenizer = Tokenizer::load(path);
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  for (const std::string_view token : kNeeded)
    if (const auto id = tokenizer->id_of(token); !id || !tokenizer->is_special(*id))
      return error("{}: {} is no special token; DeepSeek-V4's conversations cannot be written without it",
                   path.string(), token);
  return std::make_unique<V4Encoding>(std::move(*tokenizer), *profile);
}

}  // namespace plumb

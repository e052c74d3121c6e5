#include "investigator/prompts/v4_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "investigator/prompts/words.h"

namespace plumb::investigator {
namespace {

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>", kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kUser = "<｜User｜>", kAssistant = "<｜Assistant｜></think>";
constexpr std::string_view kResult = "<tool_result>", kResultEnd = "</tool_result>";
constexpr std::string_view kGet =
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get\">\n<｜DSML｜parameter name=\"key\" string=\"true\">";
constexpr std::string_view kSave =
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"save\">\n<｜DSML｜parameter name=\"key\" string=\"true\">";
constexpr std::string_view kValue = "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"value\" string=\"true\">";
constexpr std::string_view kCallEnd = "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";

// Texts that always stand together, and their tokens.
struct Piece {
  std::string_view text;
  int tokens;
};
constexpr std::array<Piece, 14> kPieces{{{kBos, 1},
                                         {kEos, 1},
                                         {kUser, 1},
                                         {kAssistant, 2},
                                         {kResult, 3},
                                         {kResultEnd, 4},
                                         {kGet, 28},
                                         {kSave, 26},
                                         {kValue, 15},
                                         {kCallEnd, 13},
                                         {" \"", 1},
                                         {" [", 1},
                                         {" (", 1},
                                         {" *", 1}}};
// Letters that the phantom's tokenizer joins.
constexpr std::array<std::string_view, 16> kJoined{"th", "ls", "nv", "na", "mb", "pa", "rs", "pr",
                                                   "sa", "st", "oo", "tr", "ue", "PA", "OO", "St"};

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

std::string marked(std::string_view text, int mark) {
  const KeyMark& m = kMarks.at(static_cast<std::size_t>(mark));
  return fmt::format("{}{}{}", m.left, text, m.right);
}

bool closes(char c) { return c == '"' || c == ']' || c == ')' || c == '*'; }
bool punctuates(char c) { return c == '.' || c == ',' || c == '?' || c == ':'; }

}  // namespace

std::string v4_said(const Turn& turn, const Fact& f) {
  const std::string key = marked(f.key, turn.key_mark), value = marked(f.value, turn.value_mark);
  using Form = Turn::Form;
  switch (turn.form) {
    case Form::remember:
      return fmt::format("hi, please remember that the {} of {} is {}.", f.attribute, key, value);
    case Form::is:
      return fmt::format("so the {} of {} is {}.", f.attribute, key, value);
    case Form::has:
      return fmt::format("ok, {} has the {} {}.", key, f.attribute, value);
    case Form::gave:
      return fmt::format("we gave {} the {} {} today.", key, f.attribute, value);
    case Form::aside:
      return fmt::format("{}{} so the {} of {} is {}.{}", turn.opener, join(turn.before), f.attribute, key, value,
                         join(turn.after));
    case Form::what_is:
      return fmt::format("so what is the {} of {}?", f.attribute, key);
    case Form::tell:
      return fmt::format("hi, tell me the {} of {}.", f.attribute, key);
    case Form::need:
      return fmt::format("I need the {} of {}.", f.attribute, key);
    case Form::lookup:
      return fmt::format("so get the {} of {}.", f.attribute, key);
    case Form::use_tool:
      return fmt::format("so save the {} of {} with the tool.", f.attribute, key);
    case Form::filler:
      return turn.opener + join(turn.before);
  }
  CHECK(false);
  return {};
}

std::string v4_turn(const Turn& turn, const std::vector<Fact>& facts, bool open) {
  using Form = Turn::Form;
  const Fact f = turn.form == Form::filler ? Fact() : facts.at(static_cast<std::size_t>(turn.fact));
  const std::string key = marked(f.key, turn.key_mark), value = marked(f.value, turn.value_mark);
  const std::string asked = fmt::format("{}{}{}", kUser, v4_said(turn, f), kAssistant);
  const auto ended = [&](std::string_view text) { return fmt::format("{}{}{}", asked, text, kEos); };
  if (turn.form == Form::lookup)
    return ended(fmt::format("{}{}{}", kGet, f.key, kCallEnd)) + fmt::format("{}{}{} of {}: {}{}{}{}{}", kUser, kResult,
                                                                             f.attribute, key, value, kResultEnd,
                                                                             kAssistant, turn.reply, kEos);
  if (turn.form == Form::use_tool) {
    const std::string call = fmt::format("{}{}{}", kSave, f.key, kValue);
    if (open) return asked + call;
    return ended(fmt::format("{}{}{}", call, f.value, kCallEnd)) +
           fmt::format("{}{}ok{}{}done.{}", kUser, kResult, kResultEnd, kAssistant, kEos);
  }
  if (!is_question(turn.form)) return ended(turn.reply);
  return open ? asked : ended(f.value);
}

std::string v4_text(const Conversation& conversation) {
  std::string text(kBos);
  for (std::size_t i = 0; i < conversation.turns.size(); ++i)
    text += v4_turn(conversation.turns[i], conversation.facts, i + 1 == conversation.turns.size());
  return text;
}

int v4_tokens(std::string_view text) {
  int count = 0;
  while (!text.empty()) {
    const auto piece =
        std::find_if(kPieces.begin(), kPieces.end(), [&](const Piece& p) { return text.starts_with(p.text); });
    std::size_t length = 1;
    int tokens = 1;
    if (piece != kPieces.end()) {
      length = piece->text.size();
      tokens = piece->tokens;
    } else if (text.size() > 1 && closes(text[0]) && punctuates(text[1])) {
      length = 2;
    } else {
      std::size_t end = 1;
      if (text.front() == ' ')
        while (end < text.size() && text[end] >= 'a' && text[end] <= 'z') ++end;
      length = end;
      tokens = end > 1 && is_word(text.substr(1, end - 1)) ? 1 : static_cast<int>(end);
    }
    count += tokens;
    text.remove_prefix(length);
  }
  return count;
}

bool is_spelt(std::string_view key_or_value) {
  return std::none_of(kJoined.begin(), kJoined.end(),
                      [&](std::string_view joined) { return key_or_value.find(joined) != std::string_view::npos; });
}

}  // namespace plumb::investigator

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/chat.h"

namespace plumb {

/// The two encodings of DeepSeek-V4: of the checkpoints of April 2026, and of V4-Flash-0731 and later. They differ in
/// what a reasoning effort writes.
enum class V4Profile { preview, official };

enum class V4Effort { low, high, max };

/// The profile of the checkpoint in `folder`, from its encoding file or its config.json, read as data. Errors: a V4.1
/// checkpoint, whose encoding is another one.
Result<V4Profile> detect_v4_profile(const std::filesystem::path& folder);

/// The effort that a request's word asks for, as DeepSeek's API maps it: nothing, medium, high and xhigh are high;
/// minimal and low are low; max and ultra are max. Errors: another word. "none" means no thinking and is not asked
/// here.
Result<V4Effort> v4_effort(std::string_view requested);

const char* v4_effort_name(V4Effort effort);

/// Control tokens by their text. Bars are U+FF5C, the block is U+2581.
namespace v4 {
inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kPad = "<｜▁pad▁｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEnd = "<｜fim▁end｜>";
}  // namespace v4

/// The token of a quick task (action, query, authority, domain, title, read_url); empty for another word.
std::string_view v4_task_token(std::string_view task);

/// A part of a prompt: the text of one control token, or text in which nothing is one. The texts in order are the
/// prompt of the reference encoder.
struct TextPiece {
  std::string text;
  bool control = false;

  bool operator==(const TextPiece&) const = default;
};

struct V4Options {
  V4Profile profile = V4Profile::official;
  bool thinking = false;
  bool drop_thinking = true;
  V4Effort effort = V4Effort::high;
  bool bos = true;
  std::string task;                                // of the last user or developer turn; empty: as its message says
  Continuation continuation = Continuation::none;  // of a last assistant message
};

/// A turn of the prompt with everything that decides its text; it refers to the messages it was made of.
struct V4Turn {
  enum class Kind { system, developer, user, latest_reminder, assistant } kind;
  struct Block {
    bool tool_result = false;
    const std::string* text = nullptr;
    const std::string* call_id = nullptr;
  };
  const ChatMessage* message = nullptr;  // user: the first of those merged
  std::vector<Block> blocks;             // user: texts and tool results in order
  std::string task;
  std::string_view head;        // the text of an effort; only of the first turn
  bool bos = false;             // only of the first turn
  bool thinking_part = false;   // assistant: reasoning and its end are written
  bool open_reasoning = false;  // assistant: the reasoning stays open and nothing follows it
  bool without_eos = false;     // assistant
  bool asks_assistant = false;  // the turn ends by opening an assistant's turn or with its task
  bool opens_thinking = false;  // of asks_assistant: with <think>, else with </think>
};

/// Steps 1 to 5 of the reference encoder, up to the text: consecutive user messages and tool results become one turn,
/// results stand in the order of their calls, thinking is kept or dropped by rule. The turns refer to `messages`.
/// Errors: an unknown role or task, a developer message without content.
Result<std::vector<V4Turn>> arrange_v4(std::span<const ChatMessage> messages, const V4Options& options);

/// Appends the text of one turn.
void append_v4_turn(const V4Turn& turn, std::vector<TextPiece>& pieces);

/// The whole prompt. A pure function; permissive like the reference encoder: check_v4 has the rules of an API.
Result<std::vector<TextPiece>> encode_v4(std::span<const ChatMessage> messages, const V4Options& options);

/// Appends text in which `<think>`, `</think>` and `｜DSML｜` are control tokens, as in the tools text.
void append_v4_marked(std::string_view text, std::vector<TextPiece>& pieces);

/// The reference's tool calls: the separator and the whole DSML block. Arguments that are no JSON object become one
/// parameter called "arguments" with the raw text.
void append_v4_calls(std::span<const ToolCall> calls, std::vector<TextPiece>& pieces);

}  // namespace plumb

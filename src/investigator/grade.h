#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "investigator/probes.h"

namespace plumb::investigator {

/// What came back for one request.
struct Reply {
  enum class Kind {
    answered,       // 200 and a readable body
    unparsable,     // 200, but not what the API promises
    rejected,       // 4xx: the server will not answer this request
    infrastructure  // no reply, a time-out, 408, 429 or 5xx: says nothing about the model
  } kind = Kind::infrastructure;
  std::string text;           // the generated text; of the other kinds the message
  std::string finish_reason;  // "stop", "length"...
  /// Of a chat: what of the text is no content. Reasoning stands before it as "<think>…</think>", the arguments of tool
  /// calls behind it.
  struct ToolCall {
    std::string name;
    std::string arguments;
  };
  std::vector<ToolCall> calls{};
  std::size_t content_end = std::string::npos;  // where the arguments begin
  bool refusal = false;                         // the text is what the API calls a refusal
  int status = 0;
  std::optional<int> prompt_tokens;
  std::optional<int> cached_tokens;
  double seconds = 0;
};

enum class Grade { right, wrong, no_answer, refused, infrastructure };
std::string_view grade_name(Grade grade);
Result<Grade> parse_grade(std::string_view name);
/// Everything but right and infrastructure: the model had its chance and the answer was not there.
bool is_failure(Grade grade);

struct Graded {
  Grade grade = Grade::infrastructure;
  std::string detail;  // the class of a wrong answer or the kind of no answer; empty when right
};

/// Code-shaped strings of a text, in order: runs of capitals, digits and inner dashes, at least four characters long,
/// with a digit. Filler never has this shape.
std::vector<std::string> code_strings(std::string_view text);

/// The detail of a reply that stopped at its length limit before its reasoning ended: it is asked again once.
inline constexpr std::string_view kLengthInReasoning = "length limit inside reasoning";

/// Grades a reply: right = the code-shaped strings of the final content (after reasoning), and of the arguments of the
/// tool that was asked for, are exactly {expected}. What stands in the reasoning alone is no answer.
Graded grade_reply(const Reply& reply, const Ask& ask);

/// Whether a text says that what was asked for was not said or is not known.
bool is_denial(std::string_view text);
/// The detail of a reply that is not graded and says so.
inline constexpr const char* kDenies = "says that it does not remember";

/// Insertions, deletions and exchanges of one character that make the one text of the other.
int edit_distance(std::string_view a, std::string_view b);

/// gzip size ÷ bytes of a text (level 9); 0 for an empty one. Low values mean repetition.
double gzip_ratio(std::string_view text);

}  // namespace plumb::investigator

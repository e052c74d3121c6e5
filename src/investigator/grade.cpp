#include "investigator/grade.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <zlib.h>

#include "base/check.h"

namespace plumb::investigator {
namespace {

constexpr std::array kGradeNames{"right", "wrong", "no_answer", "refused", "infrastructure"};
constexpr std::size_t kMinCode = 4;
constexpr int kMinRepeats = 4;  // a unit said so often in a row is a loop
constexpr std::size_t kMaxLoopWords = 8;

constexpr std::array kDenials{"first message", "no record",      "don't have",       "do not have",  "don't recall",
                              "do not recall", "not mentioned",  "wasn't mentioned", "haven't told", "have not told",
                              "no previous",   "no information", "don't know",       "do not know",  "not provided"};
constexpr std::array kRefusals{"i can't help",  "i cannot help",  "i can't assist",  "i cannot assist",
                               "i'm unable to", "i am unable to", "i'm not able to", "can't share",
                               "cannot share",  "can't provide",  "cannot provide"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  // Typographic apostrophes are common in chat models' text.
  for (std::size_t at = out.find("\xe2\x80\x99"); at != std::string::npos; at = out.find("\xe2\x80\x99", at))
    out.replace(at, 3, "'");
  return out;
}

bool has_any(const std::string& text, std::span<const char* const> phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](const char* phrase) { return text.find(phrase) != std::string::npos; });
}

// What follows the reasoning; nullopt when the reasoning never ended.
std::optional<std::string_view> final_content(std::string_view text) {
  constexpr std::string_view kEnd = "</think>";
  if (const std::size_t end = text.rfind(kEnd); end != std::string_view::npos) return text.substr(end + kEnd.size());
  if (text.find("<think>") != std::string_view::npos) return std::nullopt;
  return text;
}

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c) != 0; });
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> out;
  std::size_t i = 0;
  while (i < text.size()) {
    while (i < text.size() && std::isspace(static_cast<unsigned char>(text[i]))) ++i;
    const std::size_t begin = i;
    while (i < text.size() && !std::isspace(static_cast<unsigned char>(text[i]))) ++i;
    if (i > begin) out.push_back(text.substr(begin, i - begin));
  }
  return out;
}

bool is_loop(std::string_view text) {
  const auto w = split_words(text);
  for (std::size_t unit = 1; unit <= kMaxLoopWords; ++unit) {
    std::size_t run = 0;
    for (std::size_t i = unit; i < w.size(); ++i) {
      run = w[i] == w[i - unit] ? run + 1 : 0;
      if (run >= unit * (kMinRepeats - 1)) return true;
    }
  }
  // One character over and over, without spaces.
  std::size_t same = 1;
  for (std::size_t i = 1; i < text.size(); ++i) {
    same = text[i] == text[i - 1] ? same + 1 : 1;
    if (same >= 3 * kMinRepeats) return true;
  }
  return false;
}

Graded grade_codes(const std::vector<std::string>& codes, const Ask& ask) {
  for (const std::string& code : codes)
    for (const Fact& f : ask.facts)
      if (code == f.value && code != ask.expected)
        return {Grade::wrong, fmt::format("another planted fact (turn {})", f.turn)};
  if (std::find(codes.begin(), codes.end(), ask.expected) != codes.end())
    return {Grade::wrong, "the expected code among others"};
  for (const std::string& code : codes)
    if (const int distance = edit_distance(code, ask.expected); distance <= 2)
      return {Grade::wrong, distance == 1 ? "one character off" : "two characters off"};
  return {Grade::wrong, "unknown code"};
}

// Nothing of the shape of a code. `thought`: what the reasoning says.
Graded grade_without_code(std::string_view content, std::string_view thought, const Reply& reply, const Ask& ask) {
  if (is_blank(content) && !reply.calls.empty()) return {Grade::no_answer, "a tool call instead of an answer"};
  if (is_blank(content)) {
    const auto codes = code_strings(thought);
    const bool known = std::find(codes.begin(), codes.end(), ask.expected) != codes.end();
    return {Grade::no_answer, known ? "empty: the answer stands in the reasoning alone" : "empty"};
  }
  const std::string text = lower(content);
  if (is_loop(content)) return {Grade::no_answer, "loop"};
  if (has_any(text, kDenials)) return {Grade::wrong, "denial"};
  if (has_any(text, kRefusals)) return {Grade::refused, "refusal"};
  if (reply.finish_reason == "length") return {Grade::no_answer, "length limit"};
  return {Grade::wrong, "no code"};
}

// Whether the limit came while the expected code was being written.
bool is_cut_inside(std::string_view content, const std::string& code, const Ask& ask, const Reply& reply) {
  return reply.finish_reason == "length" && content.ends_with(code) && ask.expected.size() > code.size() &&
         ask.expected.starts_with(code);
}

// The arguments of the tool that was asked for, else of all.
std::string arguments_of(const Reply& reply, const Ask& ask) {
  std::string text;
  for (const Reply::ToolCall& call : reply.calls)
    if (ask.tool.empty() || call.name == ask.tool) text += " " + call.arguments;
  return text;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

bool is_denial(std::string_view text) { return has_any(lower(text), kDenials); }

std::string_view grade_name(Grade grade) { return kGradeNames[static_cast<std::size_t>(grade)]; }

Result<Grade> parse_grade(std::string_view name) {
  for (std::size_t i = 0; i < kGradeNames.size(); ++i)
    if (name == kGradeNames[i]) return static_cast<Grade>(i);
  return error("'{}' is no grade", name);
}

bool is_failure(Grade grade) { return grade != Grade::right && grade != Grade::infrastructure; }

std::vector<std::string> code_strings(std::string_view text) {
  std::vector<std::string> codes;
  const auto solid = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  std::size_t i = 0;
  while (i < text.size()) {
    if (!solid(text[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() &&
           (solid(text[end]) || (text[end] == '-' && end + 1 < text.size() && solid(text[end + 1]))))
      ++end;
    const std::string_view run = text.substr(i, end - i);
    if (run.size() >= kMinCode && run.find_first_of("0123456789") != std::string_view::npos) codes.emplace_back(run);
    i = end;
  }
  return codes;
}

Graded grade_reply(const Reply& reply, const Ask& ask) {
  CHECK(!ask.expected.empty());
  switch (reply.kind) {
    case Reply::Kind::infrastructure:
      return {Grade::infrastructure, reply.text};
    case Reply::Kind::rejected:
      return {Grade::refused, fmt::format("HTTP {}", reply.status)};
    case Reply::Kind::unparsable:
      return {Grade::no_answer, "unparsable"};
    case Reply::Kind::answered:
      break;
  }
  if (reply.finish_reason == "content_filter") return {Grade::refused, "content filter"};
  if (reply.refusal) return {Grade::refused, "refusal"};
  const auto written = std::string_view(reply.text).substr(0, reply.content_end);
  const auto content = final_content(written);
  if (!content && reply.calls.empty())
    return {Grade::no_answer,
            reply.finish_reason == "length" ? std::string(kLengthInReasoning) : "reasoning without an end"};
  const std::string_view said = content.value_or("");
  std::vector<std::string> codes = code_strings(said);
  for (std::string& code : code_strings(arguments_of(reply, ask))) codes.push_back(std::move(code));
  const std::string_view thought = written.substr(0, written.size() - said.size());
  if (codes.empty()) return grade_without_code(said, thought, reply, ask);
  if (std::all_of(codes.begin(), codes.end(), [&](const std::string& c) { return c == ask.expected; }))
    return {Grade::right, ""};
  if (is_loop(said)) return {Grade::no_answer, "loop"};
  if (codes.size() == 1 && is_cut_inside(said, codes[0], ask, reply)) return {Grade::no_answer, "length limit"};
  return grade_codes(codes, ask);
}

double gzip_ratio(std::string_view text) {
  if (text.empty()) return 0;
  z_stream stream{};
  constexpr int kGzipWindow = 15 + 16;
  CHECK(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::vector<unsigned char> out(deflateBound(&stream, static_cast<uLong>(text.size())));
  std::string in(text);
  stream.next_in = reinterpret_cast<unsigned char*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  const auto size = stream.total_out;
  deflateEnd(&stream);
  return static_cast<double>(size) / static_cast<double>(text.size());
}

}  // namespace plumb::investigator

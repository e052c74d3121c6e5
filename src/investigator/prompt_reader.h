#pragma once

// Reads prompts in V4's form back, independently of the code that writes them: what a perfect model would answer.

#include <regex>
#include <string>

#include "investigator/prompts/v4_text.h"

namespace plumb::investigator::testing {

/// The answer to the question a prompt ends with, found in its statements; empty when it states none.
inline std::string answer_from(const std::string& prompt) {
  const std::string user = "<｜User｜>";
  const std::size_t last = prompt.rfind(user);
  if (last == std::string::npos) return {};
  static const std::regex kQuestion(R"((code|badge|ticket|serial|token|pin|label) of ["\[(*](\w+)["\])*])");
  const std::string question = prompt.substr(last);
  std::smatch m;
  if (!std::regex_search(question, m, kQuestion)) return {};
  const std::string attribute = m[1], key = m[2];
  // A statement is a sentence, or the result of a tool, with the key in marks, the attribute and a code; the last one
  // counts.
  static const std::regex kCode(R"(["\[(*]([A-Z0-9]+(-[A-Z0-9]+)*)["\])*])");
  const std::string marks = "\"[]()*";
  std::string answer;
  for (std::size_t at = prompt.find(key); at < last; at = prompt.find(key, at + 1)) {
    if (marks.find(prompt[at - 1]) == std::string::npos || marks.find(prompt[at + key.size()]) == std::string::npos)
      continue;
    const std::size_t begin = prompt.find_last_of(".?>", at) + 1, end = prompt.find_first_of(".?<", at);
    const std::string sentence = prompt.substr(begin, end - begin);
    if (std::smatch code; sentence.find(attribute) != std::string::npos && std::regex_search(sentence, code, kCode))
      answer = code[1];
  }
  return answer;
}

/// Token position of the first character of a value where it is first stated.
inline int position_of_value(const std::string& prompt, const std::string& value) {
  return v4_tokens(std::string_view(prompt).substr(0, prompt.find(value)));
}

}  // namespace plumb::investigator::testing

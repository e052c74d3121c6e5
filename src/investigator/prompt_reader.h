#pragma once

// Reads phantom prompts back, independently of the code that writes them: what a perfect model would answer.

#include <regex>
#include <string>

#include "investigator/prompts/conversation.h"

namespace plumb::investigator::testing {

/// The answer to the question a prompt ends with, found in its statements; empty when it states none.
inline std::string answer_from(const std::string& prompt) {
  static const std::regex kWhat(R"(<user> what is the (\w+) of the (\w+) (\w+)\?<assistant>$)");
  static const std::regex kTell(R"(<user> tell me the (\w+) (\w+) (\w+) again\.<assistant>$)");
  static const std::regex kTool(R"(<user> use the tool for the (\w+) of the (\w+) (\w+)\.<assistant><call> check$)");
  const std::string tail = prompt.substr(prompt.size() > 200 ? prompt.size() - 200 : 0);
  std::smatch m;
  std::string attribute, adjective, noun;
  if (std::regex_search(tail, m, kWhat) || std::regex_search(tail, m, kTool)) {
    attribute = m[1];
    adjective = m[2];
    noun = m[3];
  } else if (std::regex_search(tail, m, kTell)) {
    adjective = m[1];
    noun = m[2];
    attribute = m[3];
  } else {
    return {};
  }
  // The last statement counts.
  std::string answer;
  std::size_t best = 0;
  for (const std::string& lead : {" the " + attribute + " of the " + adjective + " " + noun + " is ",
                                  " the " + adjective + " " + noun + " has " + attribute + " "})
    if (const std::size_t at = prompt.rfind(lead); at != std::string::npos && at + lead.size() > best) {
      best = at + lead.size();
      answer = prompt.substr(best, prompt.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", best) - best);
    }
  return answer;
}

/// Token position of the space before the first statement of a value.
inline int position_of_value(const std::string& prompt, const std::string& value) {
  return phantom_tokens(std::string_view(prompt).substr(0, prompt.find(" " + value)));
}

}  // namespace plumb::investigator::testing

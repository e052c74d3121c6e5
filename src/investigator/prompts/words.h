#pragma once

#include <string_view>
#include <vector>

namespace plumb::investigator {

/// The closed word list that probe prompts are made of: plain English words, each one token (with its leading space) of
/// the shipped phantom's vocabulary. Order is fixed: prompts of a seed never change.
struct Words {
  std::vector<std::string_view> adjectives;
  std::vector<std::string_view> nouns;
  std::vector<std::string_view> verbs;
  std::vector<std::string_view> prepositions;
  std::vector<std::string_view> attributes;  // what a planted code is called: code, password, badge...
  std::vector<std::string_view> all;         // the union, without duplicates
};
const Words& words();

/// Whether " " + word is one entry of the list.
bool is_word(std::string_view word);

}  // namespace plumb::investigator

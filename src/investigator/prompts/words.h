#pragma once

#include <string_view>
#include <vector>

namespace plumb::investigator {

/// The closed word list that probe prompts are made of: plain English words, each one token (with its leading space) of
/// the shipped phantom's tokenizer (phantom/words.py). Order is fixed: prompts of a seed never change.
struct Words {
  std::vector<std::string_view> adjectives;
  std::vector<std::string_view> nouns;
  std::vector<std::string_view> verbs;
  std::vector<std::string_view> prepositions;
  std::vector<std::string_view> adverbs;
  std::vector<std::string_view> subjects;    // who does something: we, someone...
  std::vector<std::string_view> attributes;  // what a planted code is called: code, badge, ticket...
  std::vector<std::string_view> openers;     // a message's first word
  std::vector<std::string_view> replies;     // what an assistant says to what needs no answer
  std::vector<std::string_view> filler;      // adjectives to adverbs: what sentences without grammar are made of
  std::vector<std::string_view> all;         // every word of filler and wordings, without duplicates
};
const Words& words();

/// Whether " " + word is one entry of the list.
bool is_word(std::string_view word);

}  // namespace plumb::investigator

#include "investigator/prompts/fixed_texts.h"

#include <fmt/format.h>

#include "base/rng.h"
#include "investigator/prompts/v4_text.h"

namespace plumb::investigator {
namespace {

constexpr std::uint64_t kSeed = 1;

std::string text_of(int tokens, int number) {
  Rng rng{derive_seed(kSeed, fmt::format("fixed text {} of {}", number, tokens))};
  Author author(rng);
  Conversation conversation;
  constexpr int kFacts = 4;
  std::vector<int> stated;
  // Each fact, a stretch of filler, and the question for one of the facts so far.
  for (int i = 0; i < kFacts; ++i) {
    stated.push_back(author.state_new_fact(conversation, Author::Tools::with));
    author.append(conversation, author.filler(tokens / kFacts - tokens / 16));
    conversation.turns.push_back(author.question(stated[rng.below(stated.size())], Author::Tools::with));
  }
  return v4_text(conversation);
}

}  // namespace

std::vector<std::string> fixed_texts() {
  std::vector<std::string> texts;
  struct Group {
    int count;
    int tokens;
  };
  for (const auto& [count, tokens] : {Group{8, 256}, Group{8, 1024}, Group{4, 4096}})
    for (int i = 0; i < count; ++i) texts.push_back(text_of(tokens, i));
  return texts;
}

}  // namespace plumb::investigator

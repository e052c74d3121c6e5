#include "investigator/prompts/words.h"

#include <algorithm>

namespace plumb::investigator {
namespace {

constexpr std::string_view kAdjectives =
    "old new big small red blue green dark cold warm wet dry long short soft hard deep flat slow quick late early "
    "quiet loud young tall thin wide full free";

constexpr std::string_view kNouns =
    "man king bird fish boat ship train road river lake sea hill wall door room house farm town shop tree leaf "
    "seed stone rock sand rain snow wind storm star moon sun day night week book page map lamp fire wood iron "
    "gold bread milk tea salt cup pot box bag bell clock horse dog cat bear fox wolf frog";

constexpr std::string_view kVerbs =
    "saw met left found took held made sold kept lost moved passed turned opened closed filled crossed watched "
    "followed carried cleaned painted";

constexpr std::string_view kPrepositions = "in on at by near under over behind after before from with along past";
constexpr std::string_view kAdverbs = "again today then often once soon here there now still";
constexpr std::string_view kSubjects = "we they you someone nobody people";
// Of the phantom's attributes those that no code's letters form a token with.
constexpr std::string_view kAttributes = "code badge ticket serial token pin label";
// Spelt in single characters, as a message has no space before its first word.
constexpr std::string_view kOpeners = "so now ok yes well hi by";
constexpr std::string_view kReplies = "ok.|noted.|I see.|done.|yes.|all right.|so it is.";
constexpr std::string_view kWordings =
    "a and find for get give gave has is it know me need of please remember save see so tell that the to today tool "
    "what which with right";

std::vector<std::string_view> split(std::string_view list, char separator = ' ') {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(separator), list.size());
    words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

std::vector<std::string_view> union_of(std::initializer_list<std::string_view> lists) {
  std::vector<std::string_view> words;
  for (const std::string_view list : lists)
    for (const std::string_view word : split(list))
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  return words;
}

}  // namespace

const Words& words() {
  static const Words kWords{
      .adjectives = split(kAdjectives),
      .nouns = split(kNouns),
      .verbs = split(kVerbs),
      .prepositions = split(kPrepositions),
      .adverbs = split(kAdverbs),
      .subjects = split(kSubjects),
      .attributes = split(kAttributes),
      .openers = split(kOpeners),
      .replies = split(kReplies, '|'),
      .filler = union_of({kAdjectives, kNouns, kVerbs, kPrepositions, kAdverbs}),
      .all = union_of({kAdjectives, kNouns, kVerbs, kPrepositions, kAdverbs, kSubjects, kAttributes, kWordings})};
  return kWords;
}

bool is_word(std::string_view word) {
  static const std::vector<std::string_view> kSorted = [] {
    std::vector<std::string_view> sorted = words().all;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }();
  return std::binary_search(kSorted.begin(), kSorted.end(), word);
}

}  // namespace plumb::investigator

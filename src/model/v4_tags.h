#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plumb {

/// The tags of DeepSeek-V4's answers by what they mean.
enum class V4Tag {
  none,
  think,
  end_think,
  block,
  end_block,
  invoke,
  end_invoke,
  parameter,
  end_parameter,
  flag_true,
  flag_false,
  brace
};

/// The spellings of a set of tags, for a match byte by byte. None of them begins inside another, and '<' only begins
/// one.
class V4TagSet {
 public:
  /// `lenient`: also spelt with "DSML｜", or with nothing, for the marker "｜DSML｜".
  V4TagSet(std::initializer_list<V4Tag> tags, bool lenient);

  /// Whether `text` is one of them (which), the start of one, or neither.
  enum class Match { no, partly, whole };
  std::pair<Match, V4Tag> match(std::string_view text) const;

 private:
  struct Spelling {
    V4Tag tag;
    std::string text;
  };
  void add(V4Tag tag, bool lenient);
  void add_marked(V4Tag tag, std::string_view begin, std::string_view rest, bool lenient);

  std::vector<Spelling> spellings_;
};

}  // namespace plumb

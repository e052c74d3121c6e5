#pragma once

// What a report says, without how it looks: report_markdown.cpp and report_html.cpp write the same document.

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace plumb::investigator {

/// A piece of a line.
struct Run {
  enum class Kind {
    text,     // ours, shown whole
    foreign,  // of a server, a file or a person: one line, cut at kMaxShownBytes
    code,     // same, as code
    strong    // ours, in bold
  } kind = Kind::text;
  std::string text;
};
using Line = std::vector<Run>;

inline Run text(std::string s) { return {Run::Kind::text, std::move(s)}; }
inline Run foreign(std::string s) { return {Run::Kind::foreign, std::move(s)}; }
inline Run code(std::string s) { return {Run::Kind::code, std::move(s)}; }
inline Run strong(std::string s) { return {Run::Kind::strong, std::move(s)}; }

struct Heading {
  int level = 2;  // 2 or 3
  Line line;
};
struct Paragraph {
  Line line;
  bool small = false;
};
struct Items {
  std::vector<Line> lines;
};
struct CodeBlock {
  std::string text;  // ends with a line end
};
struct Table {
  std::string caption;  // what it shows, for those who do not see what is around it
  std::vector<std::string> head;
  std::vector<std::vector<Line>> rows;
};
using Block = std::variant<Heading, Paragraph, Items, CodeBlock, Table>;
using Blocks = std::vector<Block>;

inline void append(Blocks& to, Blocks from) {
  for (Block& block : from) to.push_back(std::move(block));
}

}  // namespace plumb::investigator

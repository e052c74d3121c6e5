#pragma once

namespace plumb {

/// Follows a text byte by byte and knows whether it is inside a fenced code block of Markdown: a line of at most three
/// spaces and three or more backticks (or tildes) opens one, a line of at least as many of them and nothing else closes
/// it.
class FenceTracker {
 public:
  void push(char c);
  bool inside() const { return open_length_ > 0; }

 private:
  enum class Line { indent, run, rest } line_ = Line::indent;
  char mark_ = 0;  // of the run at the start of this line
  int indent_ = 0, run_ = 0;
  bool blank_tail_ = true;  // only white space behind the run
  char open_mark_ = 0;
  int open_length_ = 0;  // of the fence that is open; 0: none
};

}  // namespace plumb

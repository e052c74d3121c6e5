#include "model/fence.h"

namespace plumb {
namespace {

constexpr int kMaxIndent = 3, kMinRun = 3, kLongestRun = 1 << 20;

}  // namespace

void FenceTracker::push(char c) {
  if (c == '\n') {
    if (run_ >= kMinRun && !inside()) {
      open_mark_ = mark_;
      open_length_ = run_;
    } else if (run_ >= kMinRun && mark_ == open_mark_ && run_ >= open_length_ && blank_tail_) {
      open_length_ = 0;
    }
    line_ = Line::indent;
    indent_ = run_ = 0;
    blank_tail_ = true;
    return;
  }
  if (line_ == Line::indent && c == ' ' && indent_ < kMaxIndent) {
    ++indent_;
  } else if (line_ == Line::indent && (c == '`' || c == '~')) {
    line_ = Line::run;
    mark_ = c;
    run_ = 1;
  } else if (line_ == Line::run && c == mark_) {
    if (run_ < kLongestRun) ++run_;
  } else {
    line_ = Line::rest;
    if (c != ' ' && c != '\t' && c != '\r') blank_tail_ = false;
  }
}

}  // namespace plumb

#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "investigator/grade.h"

namespace plumb::investigator {

/// One thing that happened, for whoever watches.
struct Progress {
  enum class Kind { launch, trial, launch_end, note } kind = Kind::note;
  std::string label{};    // of the launch
  std::string variant{};  // "attention.split_k=on prefix_cache=off"
  std::string text{};     // why this launch; or the note
  std::string answer{};  // of an ended launch to that: "yes", "no", "it fails", "it passes"; "" when none was asked for
  std::string cell{};
  Grade grade = Grade::right;
  int right = 0;
  int done = 0;
  int total = 0;
  int launches = 0;
  double elapsed_s = 0;
};
using ProgressSink = std::function<void(const Progress&)>;

/// Prints progress: a legend of the marks, then one line a launch; on a terminal a bar that fills while its trials run.
class ProgressPrinter {
 public:
  /// Looks at the stream itself: bars only when it is a terminal.
  explicit ProgressPrinter(std::FILE* stream);
  void operator()(const Progress& progress);

 private:
  void bar(const Progress& progress);

  std::FILE* stream_;
  bool terminal_;
  bool explained_ = false;  // whether the legend of the marks is printed
  std::string marks_;       // one character a trial of the current launch
  std::string title_;
};

}  // namespace plumb::investigator

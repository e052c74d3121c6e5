#pragma once

#include <memory>
#include <thread>

#include "base/result.h"

namespace plumb::investigator {

/// A log that a launched process writes through a pipe, so that no kept secret (secrets.h) reaches the file, not even
/// one that is written in pieces. Ends when every writer has closed its end; a killed plumb leaves a broken pipe, and
/// the launch is being stopped then anyway.
class ScrubbedLog {
 public:
  /// Takes the descriptor of the file; `writer()` is what the process writes to and is the caller's to close.
  static Result<ScrubbedLog> open(int file);
  ~ScrubbedLog();
  ScrubbedLog(ScrubbedLog&& other) noexcept;
  ScrubbedLog& operator=(ScrubbedLog&&) = delete;

  int writer() const { return writer_; }
  /// Waits until what was written so far is in the file, at most a second: after the writer has ended, its last lines.
  void settle() const;

 private:
  struct Pipe;
  ScrubbedLog() = default;
  int writer_ = -1;
  std::shared_ptr<Pipe> pipe_;
  std::thread thread_;
};

}  // namespace plumb::investigator

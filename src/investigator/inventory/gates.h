#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "investigator/inventory/changes.h"

namespace plumb::investigator::inventory {

/// What decides at launch whether code runs.
struct Gate {
  std::string name;  // the environment variable, or the flag's name
  bool environment = false;
  std::optional<bool> on;  // with nothing set, or as a launch script of the range sets it; unknown: not in the range
  bool set_by_launch = false;  // a launch script of the range sets it
  bool inverted = false;       // the code runs where the gate is off

  /// Whether the code behind it runs, as far as the range tells.
  std::optional<bool> runs() const { return on ? std::optional(*on != inverted) : std::nullopt; }
};

/// One reading of an environment variable.
struct EnvRead {
  std::string name;
  std::string
      dialect;  // how it becomes a truth: "is 1", "words of truth", "integer", "non-empty", "is set"; empty: as text
  std::size_t file = 0;
  const Statement* where = nullptr;
};

/// Names of environment variables that a statement reads, with the dialect.
std::vector<EnvRead> env_reads(std::span<const Token> tokens);

/// Gates defined anywhere on the new side of the range, and what they guard.
class Gates {
 public:
  explicit Gates(const std::vector<ParsedFile>& files);

  /// The innermost gate around a statement of the new side, or around every call of its function in the range.
  /// own_condition: the statement is new, so that its own condition gates it as well.
  std::optional<Gate> of(const Source& source, const Statement& s, bool own_condition) const;

  /// Every reading of a variable on the new side.
  const std::vector<EnvRead>& reads() const { return reads_; }

 private:
  struct Calls {
    std::optional<Gate> gate;
    bool ungated = false;
  };
  void collect(std::size_t file, const Source& source);
  void collect_launch(const Source& source);
  void collect_calls(const std::vector<ParsedFile>& files);
  std::optional<Gate> around(const Source& source, const Statement& s) const;
  std::optional<Gate> in_condition(std::span<const Token> tokens) const;

  std::unordered_map<std::string, Gate> by_name_;  // variables and flags that carry a gate
  std::map<std::string, bool> set_;                // environment variables that launch scripts set
  std::unordered_map<std::string, Calls> calls_;   // functions defined in the range
  std::vector<EnvRead> reads_;
};

}  // namespace plumb::investigator::inventory

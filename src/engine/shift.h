#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace plumb {

/// What one setting moves, text by text.
struct Shift {
  std::vector<double> per_text;  // D of each text
  bool reached = true;           // false: no pass asked for this switch, so nothing was measured

  /// Over the texts.
  double mean() const;
  /// The largest: of the twenty or so texts the upper 99 %.
  double upper() const;
};

/// Log-probabilities of tokens 1, 2, ... of `ids` given those before them, natural, in f64.
std::vector<double> token_log_probabilities(Engine& engine, const Settings& settings,
                                            std::span<const std::int32_t> ids);

/// D of a text = 1/2 * mean over its tokens of (log-probability with the switch on - with all switches off)^2, which
/// estimates the Kullback-Leibler divergence for small changes; one value a text, since tokens of a text are not
/// independent. Each text has at least two tokens.
class ShiftMeter {
 public:
  ShiftMeter(std::shared_ptr<const Model> model, std::shared_ptr<Executor> executor, Backend backend,
             std::vector<std::vector<std::int32_t>> texts);
  /// Whether the log-probabilities with all switches off are finite; else measure() must not be called.
  bool finite() const;
  /// Switch `index` alone is on. A side that gives no finite log-probabilities is infinitely far.
  Shift measure(std::size_t index);

 private:
  std::shared_ptr<const Model> model_;
  std::shared_ptr<Executor> executor_;
  Backend backend_;
  std::vector<std::vector<std::int32_t>> texts_;
  std::vector<std::vector<double>> off_;  // with all switches off
};

}  // namespace plumb

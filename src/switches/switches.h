#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plumb {

/// When a setting is decided: with each request, or once at launch (weights or cache layout depend on it).
enum class Scope { request, launch };

/// How far an on side may be from its reference in the twin test. `exact` means equal to the bit.
enum class Metric { exact, nmse };
struct OpBudget {
  Metric metric;
  double bound;  // 0 for exact
};

/// One named choice between the reference (off) and something faster (on). An entry is data: the flag, the endpoint,
/// the documentation and the list of twin tests are derived from it.
struct Switch {
  std::string_view name;  // "<op>.<what>"; stable, never reused
  std::string_view on;
  std::string_view off;
  bool by_default;
  Scope scope;
  bool per_layer;  // false: a step of the runtime, which has no layers
  OpBudget op_budget;
  double shift;  // D of the honest on side on the shipped checkpoint, measured; 0 for bit-equal switches
  std::string_view source;
};

inline constexpr std::array kSwitches{
    Switch{.name = "attention.split_k",
           .on = "keys split by absolute position, normalised f32 partials merged by log-sum-exp",
           .off = "one pass over the selected keys",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::nmse, 1e-13},
           .shift = 0,
           .source = "f32 partials and log-sums; twin test, seed 92, 8 shapes: nmse 1.6e-15 to 9.7e-15"},
    Switch{.name = "indexer.fused",
           .on = "index scores and top-k selection in one pass over the keys, scores never stored",
           .off = "all index scores stored, then selected",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "same f64 chain per score, same order of selection: equal to the bit"},
    Switch{.name = "prefix_cache",
           .on = "a prompt starts from the longest stored prefix: sealed pages and a tail",
           .off = "every prompt is computed from its first token",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = false,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "state is a function of the tokens alone: equal to the bit"},
    Switch{.name = "prefill.chunked",
           .on = "prompts are computed in chunks, other sequences decode in between",
           .off = "a prompt is computed in one forward pass",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = false,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "every reader sees state in its stored format: equal to the bit"},
    Switch{.name = "sampler.fast_topk",
           .on = "the largest logits selected in one pass against a rising threshold, only those sorted",
           .off = "the whole vocabulary sorted",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = false,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "a total order (logit, then id) has one answer: equal to the bit"},
    Switch{.name = "batch.continuous",
           .on = "sequences join and leave between passes, prompts share passes with others that decode",
           .off = "a sequence starts when no other runs, and runs alone to its end",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = false,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "a row does not depend on the others of its batch: equal to the bit"},
    Switch{.name = "decode.plan_reuse",
           .on = "while the same sequences decode, the plan of the pass is kept: members, row layout, page pointers",
           .off = "the plan of every pass is made from scratch",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = false,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "the kept plan is the one that would be made: equal to the bit"},
};

inline constexpr std::size_t kSwitchCount = kSwitches.size();

/// The index of a switch by name; a misspelt name does not compile.
consteval std::size_t switch_index(std::string_view name) {
  for (std::size_t i = 0; i < kSwitches.size(); ++i)
    if (kSwitches[i].name == name) return i;
  throw "unknown switch";
}

inline constexpr int kMaxLayers = 128;

/// One settings vector: for each switch the layers on which its on side runs. A batch has exactly one.
class Settings {
 public:
  /// Every switch off on every layer: the reference.
  Settings() = default;
  /// Every switch at its default.
  static Settings defaults();

  /// True when the on side runs on `layer`; steps without a layer ask for layer 0.
  bool on(std::size_t index, int layer = 0) const { return layers_[index].test(static_cast<std::size_t>(layer)); }
  /// Same, and counts the side taken for /v1/switches.
  bool use(std::size_t index, int layer = 0) const;

  /// Sets one switch: "on", "off", "on@0-21,30" (on at these layers, off elsewhere) or "off@3" (off there, on
  /// elsewhere). Errors: unknown name (lists the known ones), a value that does not parse, layers of a switch that has
  /// none.
  Result<void> set(std::string_view name, std::string_view value);
  /// Errors: a layer named that a model of `layer_count` layers does not have.
  Result<void> check_layers(int layer_count) const;
  /// A value that `set` takes: "on", "off", "on@0-21,30" or "off@3".
  std::string describe(std::size_t index) const;
  /// A stable text of all settings: part of the prefix-cache key.
  std::string key() const;

  bool operator==(const Settings&) const = default;

 private:
  std::array<std::bitset<kMaxLayers>, kSwitchCount> layers_{};
};

/// How often each side of a switch was taken while serving, since the process started. "Active" means counted here.
struct SideCounts {
  std::uint64_t on;
  std::uint64_t off;
};
SideCounts side_counts(std::size_t index);

}  // namespace plumb

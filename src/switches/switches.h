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
           .op_budget = {Metric::nmse, 1e-12},
           .shift = 2.5e-12,
           .source = "f32 partials and log-sums; twin test, seed 92, 8 shapes: nmse 1.6e-15 to 9.7e-15 on backend ref, "
                     "up to 7.1e-13 on cpu (sink 60)"},
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
    Switch{.name = "attention.q_bf16",
           .on = "queries scaled by 1/sqrt(dim), then rounded to bf16",
           .off = "queries in f32, scores scaled",
           .by_default = false,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::nmse, 1e-5},
           .shift = 6.8e-6,
           .source = "attention over f32 rows; twin test, seed 131, 4 shapes: nmse 5.7e-7 to 3.0e-6"},
    Switch{.name = "indexer.fp8_keys",
           .on = "index keys stored as FP8 E4M3 with one f32 scale per key",
           .off = "index keys stored in f32",
           .by_default = false,
           .scope = Scope::launch,
           .per_layer = true,
           .op_budget = {Metric::nmse, 2e-3},
           .shift = 3.7e-3,
           .source = "stored keys; twin test, seed 122, 5 shapes: nmse 3.0e-4 to 6.8e-4"},
    Switch{.name = "kv.fp8",
           .on = "stored KV rows: non-rotary dims FP8 E4M3 in groups of 64 with one power-of-two scale each, rotary "
                 "dims f32",
           .off = "stored KV rows in f32",
           .by_default = false,
           .scope = Scope::launch,
           .per_layer = true,
           .op_budget = {Metric::nmse, 2e-3},
           .shift = 3.5e-3,
           .source = "stored rows; twin test, seed 121, 5 shapes: nmse 4.1e-4 to 8.2e-4"},
    Switch{.name = "compressor.fused",
           .on = "windows pooled in one pass over their items, softmax weights never stored",
           .off = "softmax weights of a window stored, then summed",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "same f64 chains in the same order: equal to the bit"},
    Switch{.name = "rope.table",
           .on = "rotary angles of all positions computed at start, then looked up",
           .off = "rotary angles computed in each pass",
           .by_default = false,
           .scope = Scope::launch,
           .per_layer = false,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "the same function of the position: equal to the bit"},
    Switch{.name = "moe.scale_on_output",
           .on = "router weights sum to 1, the routed sum is multiplied once by the routed scaling factor",
           .off = "router weights hold the routed scaling factor",
           .by_default = false,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::nmse, 1e-13},
           .shift = 2.8e-12,
           .source = "router and experts; twin test, seed 141, 3 shapes: nmse 0 to 3.0e-15"},
    Switch{.name = "moe.grouped",
           .on = "rows gathered per expert over the whole batch, an expert's weights read once",
           .off = "rows gathered per expert 32 at a time, an expert's weights read for each of them",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "a row's chains do not depend on the rows beside it: equal to the bit"},
    Switch{.name = "moe.nvfp4_experts",
           .on = "routed experts' weights in NVFP4 (E2M1, E4M3 scale per 16, one f32 per matrix), dequantised in the "
                 "product",
           .off = "routed experts' weights in f32",
           .by_default = false,
           .scope = Scope::launch,
           .per_layer = true,
           .op_budget = {Metric::nmse, 5e-2},
           .shift = 7.8e-2,
           .source = "experts on random weights; twin test, seed 201, 3 shapes, 2 backends: nmse 6.1e-3 to 2.8e-2"},
    Switch{.name = "linear.fp8",
           .on = "attention and indexer projections (q_a, q_b, kv, o_b, indexer q_b): weights FP8 E4M3 in 128x128 "
                 "blocks, inputs FP8 in groups of 128",
           .off = "weights and inputs in f32",
           .by_default = false,
           .scope = Scope::launch,
           .per_layer = true,
           .op_budget = {Metric::nmse, 3e-3},
           .shift = 8.7e-2,
           .source = "one layer on random weights; twin test, seed 211, 5 shapes, 2 backends: nmse 1.3e-3 to 1.4e-3"},
    Switch{.name = "chat.incremental_render",
           .on = "the ids of earlier turns are kept, and only what is new is rendered and tokenised",
           .off = "every conversation is rendered and tokenised whole",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = false,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "a stretch's ids are a function of its key, which is compared: equal ids"},
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
    Switch{.name = "mhc.bf16_mix",
           .on = "mixing product on bf16 inputs, f32 accumulation",
           .off = "mixing product in full precision",
           .by_default = false,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::nmse, 1e-5},
           .shift = 6.8e-6,
           .source = "a site with both halves; twin test, seed 222, 6 shapes, 2 backends: nmse up to 2.9e-6"},
    Switch{.name = "mhc.fused",
           .on = "norm, mixing product, Sinkhorn and collapse in one pass per row; post likewise",
           .off = "each step over all rows, intermediates stored",
           .by_default = true,
           .scope = Scope::request,
           .per_layer = true,
           .op_budget = {Metric::exact, 0},
           .shift = 0,
           .source = "the same chains per row: equal to the bit"},
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
  /// True when both say the same of every switch of launch scope.
  bool agrees_at_launch(const Settings& other) const;
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

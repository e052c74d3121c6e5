#pragma once

#include <array>
#include <span>
#include <string_view>

#include "investigator/inventory/words.h"

namespace plumb::investigator::inventory {

/// How a change can alter numbers or state. The words are stable: they stand in JSON.
enum class Class {
  dtype_cast,
  accumulation_type,
  gemm_precision,
  scale_added,
  scale_removed,
  scale_moved,
  guard_removed,
  guard_moved,
  default_flipped,
  env_gate_added,
  argument_dropped,
  top_k,
  tie_order,
  epsilon,
  clamp,
  mask,
  bound,
  layout,
  index_width,
  cache_key,
  state_transfer,
  synchronisation,
  two_dialects,
  arithmetic,
  other
};

/// A class with its weight (relative frequency among causes of lost context, a starting prior) and why it can hurt.
struct ClassEntry {
  Class cls;
  std::string_view word;
  double weight;
  std::string_view why;
};
std::span<const ClassEntry> classes();
const ClassEntry& entry(Class cls);

/// Part of a serving stack. Ports of the model and its state that faults are reported for, most specific first.
struct Area {
  std::string_view name;
  std::array<std::string_view, 12> words;  // name parts; any of them says the area
  double weight;                           // relative to other areas
  double sites_per_layer;                  // applications in one layer; 0: once a forward pass or less
  int sites_extra;                         // applications outside the layers
  int hash_layers_only;                    // 1: only the first three layers have it
  std::string_view phase;                  // where it runs if the code does not say: prefill, decode or both
  std::string_view probes;                 // which probes should fail, by the names of `plumb probe --suite`
  double measured;                         // published relative error of a reduced precision here; 0: none
  std::string_view measured_note;
};
std::span<const Area> areas();
const Area& area_of(const WordSet& words, const WordSet& path);

/// A change of tokens that says a class by the words around it.
struct WordRule {
  Class cls;
  std::array<std::string_view, 12>
      words;  // parts of the changed names, or beside a changed number; "=max": a whole name
  std::array<std::string_view, 10> context;  // any of them must be near; empty: none needed
  std::string_view what;
};
std::span<const WordRule> word_rules();

/// Words of code that serves people rather than numbers: logs, metrics, arguments, ports.
bool is_plumbing(const WordSet& words);

/// A number format with its unit roundoff in the convention of the study: half the spacing of the significand's last
/// bit relative to 2 (bf16: 2^-9). 0: wide enough (f32, f64), or not a rounding format (integers).
struct Format {
  std::string_view word;
  std::array<std::string_view, 14> names;
  double unit_roundoff;
  int width;  // order of precision; f64 is largest
};
const Format* format_of(std::string_view token);

}  // namespace plumb::investigator::inventory

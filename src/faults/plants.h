#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "switches/backend.h"

namespace plumb::faults {

/// How strongly, where and with which randomness a fault is planted. What `severity` scales is the form's to say; 1 is
/// the form as described.
struct Dose {
  double severity = 1;
  std::string layers = "all";
  std::uint64_t seed = 0;          // for forms that need randomness of their own
  std::uint64_t launch = 0;        // tells one launch from the next, for forms that decide once per launch
  Backend backend = Backend::cpu;  // what this process computes on
};

/// What a plant replaces: the on side of its host, and for the investigator's tests alone the off side, or a step under
/// no switch.
enum class PlantSide { on, off, step };

/// One way to plant a fault: a wrong on side of a switch that exists. `apply` overwrites the host's entry of the
/// on-side table in this process, before serving starts; off stays bit-identical, no error is raised, no log line
/// changes.
struct Plant {
  std::string_view kind;  // as in the catalogue of fault kinds
  std::string_view form;
  std::string_view host;  // the switch whose on side is wrong; "none" for a step under no switch
  /// Where it is first seen, stated before it was measured: "<stage>: <port>" or "<stage>: state <kind of state>", the
  /// stages being prefill, decode, hit and fork; or a stage of the runtime that has no port.
  std::string_view site;
  std::string_view what;  // what goes wrong, in one sentence
  double severity = 1;
  std::string_view layers = "all";  // on which its host is on; other layers run the off side
  void (*apply)(const Dose& dose) = nullptr;
  /// The catalogue's prior over the probes S B N T H C D R: x fails, . passes, ~ depends.
  std::string_view prior = "........";
  /// Why the measured signature is not the prior, or what the phantom cannot show.
  std::string_view note = "";
  /// Fit for the demo: its damage is large enough to be confirmed within the demo's time.
  bool demo = false;
  PlantSide side = PlantSide::on;
};

/// Plants it in this process.
void apply(const Plant& plant, const Dose& dose);

/// The table of plants, in a stable order.
std::span<const Plant> plants();

/// The entry of a kind and form, or null.
const Plant* find_plant(std::span<const Plant> table, std::string_view kind, std::string_view form);

}  // namespace plumb::faults

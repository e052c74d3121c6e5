#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plumb::faults {

/// How much of a fault is planted. What `severity` scales is the form's to say; 1 is the form as described.
struct Dose {
  double severity = 1;
  std::string layers = "all";
  std::uint64_t seed = 0;  // for forms that need randomness of their own
};

/// One way to plant a fault: a wrong on side of a switch that exists. `apply` overwrites the host's entry of the
/// on-side table in this process, before serving starts; off stays bit-identical, no error is raised, no log line
/// changes.
struct Plant {
  std::string_view kind;  // as in the catalogue of fault kinds
  std::string_view form;
  std::string_view host;  // the switch whose on side is wrong
  std::string_view site;  // the first port that differs
  std::string_view what;  // what goes wrong, in one sentence
  double severity;
  std::string_view layers;
  void (*apply)(const Dose& dose);
};

/// The table of plants, in a stable order: a seed's draw depends on it.
std::span<const Plant> plants();

/// The entry of a kind and form, or null.
const Plant* find_plant(std::span<const Plant> table, std::string_view kind, std::string_view form);

}  // namespace plumb::faults

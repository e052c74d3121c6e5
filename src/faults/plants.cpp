#include "faults/plants.h"

#include <array>
#include <vector>

#include "faults/forms/forms.h"
#include "faults/forms/honest.h"

namespace plumb::faults {
namespace {

// New hosts go to the end: a seed's draw depends on the order of the demo's plants.
constexpr std::array kHosts{&attention_split_k_plants,
                            &indexer_fused_plants,
                            &prefix_cache_plants,
                            &prefix_index_plants,
                            &prefill_chunked_plants,
                            &compressor_fused_plants,
                            &rope_table_plants,
                            &moe_plants,
                            &fp8_plants,
                            &sampler_fast_topk_plants,
                            &decode_plan_reuse_plants,
                            &batch_continuous_plants,
                            &chat_render_plants,
                            &mhc_plants,
                            &no_switch_plants};

std::vector<Plant> gather() {
  std::vector<Plant> all;
  for (const auto host : kHosts)
    for (const Plant& plant : host()) all.push_back(plant);
  return all;
}

}  // namespace

Backend planted_backend = Backend::cpu;

void apply(const Plant& plant, const Dose& dose) {
  planted_backend = dose.backend;
  plant.apply(dose);
}

std::span<const Plant> plants() {
  static const std::vector<Plant> kAll = gather();
  return kAll;
}

const Plant* find_plant(std::span<const Plant> table, std::string_view kind, std::string_view form) {
  for (const Plant& plant : table)
    if (plant.kind == kind && plant.form == form) return &plant;
  return nullptr;
}

}  // namespace plumb::faults

#include "faults/plants.h"

#include <array>

#include "faults/forms.h"

namespace plumb::faults {

namespace {

constexpr std::array kPlants{
    Plant{.kind = "splitk-merge",
          .form = "no-rescale",
          .host = "attention.split_k",
          .site = "layers.2.attn_heads",
          .what = "partials are merged without rescaling by the running maximum",
          .severity = 1,
          .layers = "all",
          .apply = &plant_splitk_no_rescale},
    Plant{.kind = "idx-score-form",
          .form = "uniform-head-weights",
          .host = "indexer.fused",
          .site = "layers.2.indexer.topk",
          .what = "the indexer ignores the head weights: every head votes alike",
          .severity = 1,
          .layers = "all",
          .apply = &plant_index_uniform_heads},
    Plant{.kind = "cmp-state-not-cached",
          .form = "index-rows-left-behind",
          .host = "prefix_cache",
          .site = "layers.2.indexer.topk",
          .what = "a prefix hit restores the compressed rows but not the indexer's",
          .severity = 1,
          .layers = "all",
          .apply = &plant_prefix_without_index_rows},
    Plant{.kind = "chunk-boundary-state",
          .form = "reset-indexer",
          .host = "prefill.chunked",
          .site = "layers.2.indexer.topk",
          .what = "every chunk but the first starts from a reset indexer: what earlier chunks told is not found",
          .severity = 1,
          .layers = "all",
          .apply = &plant_chunk_reset_indexer},
};

}  // namespace

std::span<const Plant> plants() { return kPlants; }

const Plant* find_plant(std::span<const Plant> table, std::string_view kind, std::string_view form) {
  for (const Plant& plant : table)
    if (plant.kind == kind && plant.form == form) return &plant;
  return nullptr;
}

}  // namespace plumb::faults

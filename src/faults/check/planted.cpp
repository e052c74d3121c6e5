#include "faults/check/planted.h"

#include <fmt/format.h>

#include "base/check.h"

namespace plumb::faults {

Variant honest_variant(const Plant& plant) {
  Variant variant{.probes = Settings::defaults(), .texts = Settings()};
  if (plant.side == PlantSide::step) return variant;
  if (plant.side == PlantSide::off) {
    CHECK(variant.probes.set(plant.host, "off"));
    return variant;
  }
  const std::string on = plant.layers == "all" ? "on" : fmt::format("on@{}", plant.layers);
  CHECK(variant.probes.set(plant.host, on) && variant.texts.set(plant.host, on));
  return variant;
}

Variant planted_variant(const Plant& plant, std::uint64_t seed, std::uint64_t launch) {
  Variant variant = honest_variant(plant);
  variant.plant = [&plant, seed, launch] {
    apply(plant, {.severity = plant.severity,
                  .layers = std::string(plant.layers),
                  .seed = seed,
                  .launch = launch,
                  .backend = kMeasuredBackend});
  };
  return variant;
}

std::string ground_name(const Plant& plant) {
  if (plant.side == PlantSide::step) return "step";
  return fmt::format("{} {} {} layers", plant.host, plant.side == PlantSide::on ? "on" : "off", plant.layers);
}

}  // namespace plumb::faults

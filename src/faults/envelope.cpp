#include "faults/envelope.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/random.h>

#include "base/check.h"
#include "base/durable_file.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "switches/switches.h"

namespace plumb::faults {
namespace {

constexpr std::size_t kMaxEnvelopeBytes = 2 * kEnvelopeBytes;
constexpr std::array<std::string_view, 7> kStratumNames{"clean",     "one",      "two",   "stochastic",
                                                        "no-switch", "off-side", "masked"};

// First a pair of kind and host that none of `before` has the host of, then a form. Null: there is none.
const Plant* draw_plant(Rng& rng, std::span<const Plant> table, PlantSide side, std::span<const Dealt> before) {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  const auto eligible = [&](const Plant& plant) {
    return plant.side == side && std::ranges::find(before, plant.host, &Dealt::host) == before.end();
  };
  for (const Plant& plant : table)
    if (const std::pair pair{plant.kind, plant.host}; eligible(plant) && std::ranges::find(pairs, pair) == pairs.end())
      pairs.push_back(pair);
  if (pairs.empty()) return nullptr;
  const auto drawn = pairs[rng.below(pairs.size())];
  std::vector<const Plant*> forms;
  for (const Plant& plant : table)
    if (eligible(plant) && std::pair{plant.kind, plant.host} == drawn) forms.push_back(&plant);
  return forms[rng.below(forms.size())];
}

// A switch that is deployed off, and of launch scope: what is planted is decided when a server starts.
std::string draw_mask(Rng& rng) {
  std::vector<std::string_view> names;
  for (const Switch& entry : kSwitches)
    if (!entry.by_default && entry.scope == Scope::launch) names.push_back(entry.name);
  CHECK(!names.empty());
  return std::string(names[rng.below(names.size())]);
}

// The host and each other switch that is on by default with probability 1/2: so the list says little of the host.
std::vector<std::string> draw_deployed_off(Rng& rng, std::string_view host) {
  std::vector<std::string> names;
  for (const Switch& entry : kSwitches)
    if (const bool coin = rng.below(2) == 0; entry.by_default && (coin || entry.name == host))
      names.emplace_back(entry.name);
  return names;
}

void random_bytes(void* data, std::size_t size) { CHECK(::getrandom(data, size, 0) == static_cast<ssize_t>(size)); }

}  // namespace

std::uint64_t half_seed(std::uint64_t seed, std::string_view label) {
  return std::stoull(sha256_hex(fmt::format("plumb {} {}", label, seed)).substr(0, 16), nullptr, 16);
}

std::string_view stratum_name(Stratum stratum) { return kStratumNames[static_cast<std::size_t>(stratum)]; }

Result<Stratum> parse_stratum(std::string_view name) {
  const auto found = std::ranges::find(kStratumNames, name);
  if (found == kStratumNames.end())
    return error("'{}' is no stratum; there are {}", name, fmt::join(kStratumNames, ", "));
  return static_cast<Stratum>(found - kStratumNames.begin());
}

Result<Deal> draw(std::uint64_t seed, Stratum stratum, std::span<const Plant> table) {
  Deal deal{.seed = seed, .stratum = stratum};
  if (stratum == Stratum::clean) return deal;
  const PlantSide side = stratum == Stratum::no_switch  ? PlantSide::step
                         : stratum == Stratum::off_side ? PlantSide::off
                                                        : PlantSide::on;
  Rng rng(half_seed(seed, "plant"));
  const std::size_t wanted = stratum == Stratum::two ? 2 : 1;
  while (deal.plants.size() < wanted) {
    const Plant* plant = draw_plant(rng, table, side, deal.plants);
    if (plant == nullptr)
      return error("there is no {}plant of stratum {} to draw from", deal.plants.empty() ? "" : "second ",
                   stratum_name(stratum));
    deal.plants.push_back({.kind = std::string(plant->kind),
                           .form = std::string(plant->form),
                           .host = std::string(plant->host),
                           .dose = {.severity = plant->severity,
                                    .layers = std::string(plant->layers),
                                    .seed = half_seed(seed, deal.plants.empty() ? "dose" : "second dose")}});
  }
  if (stratum == Stratum::stochastic) deal.rate = kStochasticRate;
  if (stratum == Stratum::masked) deal.masked_by = draw_mask(rng);
  if (stratum == Stratum::off_side) deal.deployed_off = draw_deployed_off(rng, deal.plants.front().host);
  return deal;
}

std::string envelope_text(const Deal& deal) {
  nlohmann::ordered_json json{{"stratum", stratum_name(deal.stratum)}, {"plants", nlohmann::ordered_json::array()}};
  for (const Dealt& plant : deal.plants)
    json["plants"].push_back({{"kind", plant.kind},
                              {"form", plant.form},
                              {"host", plant.host},
                              {"severity", plant.dose.severity},
                              {"layers", plant.dose.layers},
                              {"dose_seed", plant.dose.seed}});
  json["rate"] = deal.rate;
  json["masked_by"] = deal.masked_by;
  json["deployed_off"] = deal.deployed_off;
  json["seed"] = deal.seed;
  json["nonce"] = deal.nonce;
  std::string text = json.dump(2);
  CHECK(text.size() < kEnvelopeBytes);
  text.resize(kEnvelopeBytes - 1, ' ');
  return text + "\n";
}

Result<Deal> parse_envelope(std::string_view text) try {
  const auto json = nlohmann::json::parse(text);
  Deal deal;
  const auto stratum = parse_stratum(json.at("stratum").get<std::string>());
  if (!stratum) return error("not an envelope: {}", stratum.error().message);
  deal.stratum = *stratum;
  for (const auto& entry : json.at("plants")) {
    Dealt plant;
    entry.at("kind").get_to(plant.kind);
    entry.at("form").get_to(plant.form);
    entry.at("host").get_to(plant.host);
    entry.at("severity").get_to(plant.dose.severity);
    entry.at("layers").get_to(plant.dose.layers);
    entry.at("dose_seed").get_to(plant.dose.seed);
    deal.plants.push_back(plant);
  }
  json.at("rate").get_to(deal.rate);
  json.at("masked_by").get_to(deal.masked_by);
  json.at("deployed_off").get_to(deal.deployed_off);
  json.at("seed").get_to(deal.seed);
  json.at("nonce").get_to(deal.nonce);
  return deal;
} catch (const nlohmann::json::exception& e) {
  return error("not an envelope: {}", e.what());
}

Result<void> write_envelope(const std::filesystem::path& path, std::string_view text) {
  return create_file_durably(path, text, 0600);
}

Result<std::string> read_envelope(const std::filesystem::path& path) { return read_file(path, kMaxEnvelopeBytes); }

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  random_bytes(&seed, sizeof seed);
  return seed;
}

std::string random_nonce() { return fmt::format("{:016x}{:016x}", random_seed(), random_seed()); }

}  // namespace plumb::faults

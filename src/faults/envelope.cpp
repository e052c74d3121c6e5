#include "faults/envelope.h"

#include <nlohmann/json.hpp>
#include <sys/random.h>

#include "base/check.h"
#include "base/durable_file.h"
#include "base/rng.h"
#include "base/sha256.h"

namespace plumb::faults {
namespace {

constexpr std::size_t kMaxEnvelopeBytes = 4096;

void random_bytes(void* data, std::size_t size) { CHECK(::getrandom(data, size, 0) == static_cast<ssize_t>(size)); }

}  // namespace

std::uint64_t half_seed(std::uint64_t seed, std::string_view label) {
  return std::stoull(sha256_hex(fmt::format("plumb {} {}", label, seed)).substr(0, 16), nullptr, 16);
}

Result<Deal> draw(std::uint64_t seed, int faults, std::span<const Plant> table) {
  if (faults != 0 && faults != 1) return error("--faults {}: this version plants at most one fault", faults);
  Deal deal{.seed = seed};
  if (faults == 0) return deal;
  if (table.empty()) return error("there are no plants to draw from");
  Rng rng(half_seed(seed, "plant"));
  const Plant& plant = table[rng.below(table.size())];
  deal.kind = plant.kind;
  deal.form = plant.form;
  deal.host = plant.host;
  deal.dose = {.severity = plant.severity, .layers = std::string(plant.layers), .seed = half_seed(seed, "dose")};
  return deal;
}

std::string envelope_text(const Deal& deal) {
  const nlohmann::ordered_json json{{"kind", deal.kind},          {"form", deal.form},
                                    {"host", deal.host},          {"severity", deal.dose.severity},
                                    {"layers", deal.dose.layers}, {"dose_seed", deal.dose.seed},
                                    {"seed", deal.seed},          {"nonce", deal.nonce}};
  std::string text = json.dump(2);
  CHECK(text.size() < kEnvelopeBytes);
  text.resize(kEnvelopeBytes - 1, ' ');
  return text + "\n";
}

Result<Deal> parse_envelope(std::string_view text) try {
  const auto json = nlohmann::json::parse(text);
  Deal deal;
  json.at("kind").get_to(deal.kind);
  json.at("form").get_to(deal.form);
  json.at("host").get_to(deal.host);
  json.at("severity").get_to(deal.dose.severity);
  json.at("layers").get_to(deal.dose.layers);
  json.at("dose_seed").get_to(deal.dose.seed);
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

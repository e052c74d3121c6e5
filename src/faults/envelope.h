#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "faults/plants.h"

namespace plumb::faults {

/// What sort of fault is dealt. Each is one line of the investigator's acceptance.
enum class Stratum {
  clean,       // nothing
  one,         // one wrong on side
  two,         // two, of different hosts
  stochastic,  // one, in kStochasticRate of the launches
  no_switch,   // a wrong step under no switch
  off_side,    // a wrong off side; its host is deployed off, and about half of the other switches
  masked       // one that is only there while another switch is off
};
inline constexpr double kStochasticRate = 0.6;

/// "clean", "one", "two", "stochastic", "no-switch", "off-side", "masked".
std::string_view stratum_name(Stratum stratum);
/// Errors: none of these names.
Result<Stratum> parse_stratum(std::string_view name);

/// One plant of a deal.
struct Dealt {
  std::string kind;
  std::string form;
  std::string host;
  Dose dose;
};

/// What a dealer drew and sealed.
struct Deal {
  std::uint64_t seed = 0;  // the draw is a function of it and of the table of plants
  Stratum stratum = Stratum::clean;
  std::vector<Dealt> plants;
  double rate = 1;                        // share of the launches in which they are planted
  std::string masked_by;                  // while this switch is on, nothing is planted; empty: none
  std::vector<std::string> deployed_off;  // switches that are to be deployed off though they are on by default
  std::string nonce;  // 128 random bits in hexadecimal: the commitment cannot be guessed from the seed
};

/// The first eight bytes of SHA-256("plumb <label> <seed>"): knowing one half of a seed says nothing about another.
std::uint64_t half_seed(std::uint64_t seed, std::string_view label);

/// Draws by half_seed(seed, "plant") from `table`: from its on sides, or from its off sides and steps where the stratum
/// asks for them; first a pair of kind and host, each as likely as any other, then one of its forms. The nonce stays
/// empty. Errors: the table has nothing (or for `two` no second host) to draw from.
Result<Deal> draw(std::uint64_t seed, Stratum stratum, std::span<const Plant> table);

/// The size of every envelope: who lists the folder learns nothing of what was drawn.
inline constexpr std::size_t kEnvelopeBytes = 4096;

/// The envelope's bytes: one JSON object, padded with spaces to kEnvelopeBytes.
std::string envelope_text(const Deal& deal);
Result<Deal> parse_envelope(std::string_view text);

/// Writes the envelope with mode 0600 and flushes file and folder before it returns. Errors: it exists already.
Result<void> write_envelope(const std::filesystem::path& path, std::string_view text);
Result<std::string> read_envelope(const std::filesystem::path& path);

/// 64 bits, or 128 in hexadecimal, from the operating system.
std::uint64_t random_seed();
std::string random_nonce();

}  // namespace plumb::faults

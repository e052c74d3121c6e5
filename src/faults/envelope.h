#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "faults/plants.h"

namespace plumb::faults {

/// What a dealer drew and sealed. kind "none": nothing is planted.
struct Deal {
  std::uint64_t seed = 0;  // the draw is a function of it and of the table of plants
  std::string kind = "none";
  std::string form;
  std::string host;
  Dose dose;
  std::string nonce;  // 128 random bits in hexadecimal: the commitment cannot be guessed from the seed
};

/// The first eight bytes of SHA-256("plumb <label> <seed>"): knowing one half of a seed says nothing about another.
std::uint64_t half_seed(std::uint64_t seed, std::string_view label);

/// Draws uniformly from the table by half_seed(seed, "plant"), or "none" for faults 0. The nonce stays empty.
/// Errors: faults neither 0 nor 1, an empty table.
Result<Deal> draw(std::uint64_t seed, int faults, std::span<const Plant> table);

/// The size of every envelope: who lists the folder learns nothing of what was drawn.
inline constexpr std::size_t kEnvelopeBytes = 1024;

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

#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "faults/envelope.h"
#include "faults/plants.h"
#include "switches/switches.h"

namespace plumb::faults {

/// The environment variable by which plumb-faulty serve finds the dealer's socket; the same whatever was drawn.
inline constexpr const char* kDealerVariable = "PLUMB_DEALER";

struct DealerOptions {
  std::filesystem::path envelope;
  Stratum stratum = Stratum::one;
  bool resume = false;       // read the envelope instead of drawing
  std::string commitment;    // with resume: what the envelope must hash to; empty: not checked
  bool uncommitted = false;  // with resume: nothing was announced when the case stopped; draw if there is no envelope
};

/// What is dealt from: the demo's on sides, or with `all_kinds` all that were recorded as damage; and of off sides and
/// of steps that leave short prompts right those that were recorded as damage.
std::vector<Plant> dealt_plants(bool all_kinds);

/// Draws and seals a plant, then serves it to the processes of this same executable until `in` closes.
///
/// Reads one line from `in`: the seed in decimal, or nothing for one from the operating system. Writes the envelope,
/// then one JSON line to `out`: {"commitment", "probe_seed", "socket", "deployed_off"}. Every reply on the socket has
/// the same size, whatever was drawn. Ends when `in` closes, so that it never outlives who started it.
Result<void> run_dealer(const DealerOptions& options, std::span<const Plant> table, int in, int out);

/// Asks the dealer at `socket_path` what to plant. Errors: nobody there, or no reply within five seconds.
Result<Deal> ask_dealer(const std::string& socket_path);

/// Plants what was dealt in this process, which computes on `backend` with `settings`: nothing for a clean deal, in a
/// launch whose coin says so, and while the masking switch is on. Errors: this build has no such plant.
Result<void> plant(const Deal& deal, std::span<const Plant> table, Backend backend, const Settings& settings);

}  // namespace plumb::faults

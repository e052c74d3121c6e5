#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "investigator/sealed_deal.h"

namespace plumb::investigator {

/// A switch of the server that the demo deploys; `shift` as the server's table has it, negative when not stated.
struct DemoSwitch {
  std::string name;
  bool deployed_on = true;
  bool by_request = false;  // requests can turn it; else each launch has one side
  double shift = -1;
};

struct DemoOptions {
  std::filesystem::path model;       // the checkpoint to serve
  std::filesystem::path executable;  // plumb-faulty
  std::filesystem::path case_dir;
  std::string backend = "cpu";  // of the server
  std::vector<DemoSwitch> switches;
  std::map<std::string, std::int64_t> facts;  // of the deployment file: window, chunk, page, index_topk
  std::optional<std::uint64_t> seed;
  std::string stratum = "one";  // of what the dealer plants: "clean", "one", "two" and so on (docs/faults.md)
  bool all_kinds = false;       // drawn from all plants that are known to do damage, not from the demo's
  bool anonymous = false;       // the deployment file calls the switches s01, s02…
  bool resume = false;
  std::function<void(const std::string&)> say;   // one line for whoever watches; may be empty
  std::function<void(const std::string&)> warn;  // what was asked for is not what is done; may be empty
};

/// What a demo hands to the investigation; nothing of it depends on what was planted.
struct DemoCase {
  std::filesystem::path deployment;  // a deployment file in the case folder
  std::filesystem::path case_dir;
  std::uint64_t probe_seed = 0;
  bool resume = false;
  /// Whether the dealer, without which no server starts, still lives. An error says what to do.
  std::function<Result<void>()> surroundings;
};

/// Investigates a case blind and returns what `plumb investigate --json` prints.
using Investigation = std::function<Result<std::string>(const DemoCase&)>;

struct DemoResult {
  std::string json;  // the verdict with `planted`, `match` and `seconds`
  std::string verdict;
  Planted planted;
  bool match = false;
  double seconds = 0;      // of the run that reached the verdict
  std::string commitment;  // the envelope's SHA-256, which was checked
  bool resumed = false;    // an earlier run had begun the case
  int exit_code = 3;
};

/// Seals a plant, investigates, writes verdict.json, and only then opens the envelope and compares.
/// A dealer that dies meanwhile ends the demo with an error and without a verdict; it can be resumed with another one.
///
/// The envelope lies beside the case folder: <case_dir>.envelope.json. Case files: demo.json (commitment and probe
/// seed, on disk before the first launch), deployment.toml, verdict.json, result.json, and those of the investigation.
/// Resuming a finished demo opens and compares again and leaves its result.json as it is.
Result<DemoResult> run_demo(const DemoOptions& options, const Investigation& investigate);

/// The envelope of a case: beside its folder, however the folder is written.
std::filesystem::path envelope_of(const std::filesystem::path& case_dir);

/// The deployment file of a demo: one server, one switch a line, the dealer's socket in its environment;
/// `deployed_off`: switches that are off although they are on by default.
std::string demo_deployment(const DemoOptions& options, const std::string& dealer_socket,
                            const std::vector<std::string>& deployed_off = {});

/// Whether the verdict (JSON text of an investigation) says what was planted, and the demo's exit code: 1 the planted
/// fault was found, 0 nothing planted and clean, 2 inconclusive, 3 wrong. Found means: the culprits are the hosts of
/// the plants, each with the side that was wrong; the masking switch, off side, may stand beside its host; a step under
/// no switch is "unexplained" without a culprit. `names`: what the deployment file calls a switch, where it is another
/// name.
struct Comparison {
  bool match;
  int exit_code;
};
Result<Comparison> compare_with_planted(const std::string& verdict_json, const Planted& planted,
                                        const std::map<std::string, std::string>& names = {});

}  // namespace plumb::investigator

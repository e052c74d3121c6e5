#include "investigator/demo.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "tensor/strict_json.h"

namespace plumb::investigator {
namespace {

using nlohmann::ordered_json;

// TOML's basic strings take JSON's escapes.
std::string quoted(const std::string& text) { return ordered_json(text).dump(); }

struct Commitment {
  std::string sha256;
  std::uint64_t probe_seed = 0;
};

std::filesystem::path commitment_file(const DemoOptions& options) { return options.case_dir / "demo.json"; }
std::filesystem::path verdict_file(const DemoOptions& options) { return options.case_dir / "verdict.json"; }

Result<std::optional<Commitment>> read_commitment(const DemoOptions& options) {
  const auto path = commitment_file(options);
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto text = read_file(path);
  if (!text) return tl::unexpected(text.error());
  try {
    const auto json = ordered_json::parse(*text);
    return Commitment{.sha256 = json.at("commitment"), .probe_seed = json.at("probe_seed")};
  } catch (const ordered_json::exception& e) {
    return error("{}: {}", path.string(), e.what());
  }
}

// All that can be known to be wrong before anything is created.
Result<void> check_options(const DemoOptions& options) {
  std::error_code failed;
  if (std::filesystem::exists(options.case_dir, failed) && !std::filesystem::is_directory(options.case_dir, failed))
    return error("{}: is there and is not a folder; choose another --case", options.case_dir.string());
  if (!std::filesystem::is_regular_file(options.executable, failed))
    return error("{}: is missing; build the target plumb-faulty", options.executable.string());
  if (!options.resume && std::filesystem::exists(envelope_of(options.case_dir), failed))
    return error("{}: exists already; continue its case with --resume, or choose another --case",
                 envelope_of(options.case_dir).string());
  return {};
}

Result<void> prepare_case(const DemoOptions& options) {
  std::error_code failed;
  const bool used =
      std::filesystem::exists(options.case_dir, failed) && !std::filesystem::is_empty(options.case_dir, failed);
  if (failed) return error("{}: {}", options.case_dir.string(), failed.message());
  // Killed before anything was sealed, a demo with a stated seed begins as it would have then.
  const auto exists = [&](const std::filesystem::path& file) { return std::filesystem::exists(file, failed); };
  if (options.resume && !exists(envelope_of(options.case_dir)) && !exists(commitment_file(options)) &&
      !exists(verdict_file(options))) {
    if (used || !options.seed)
      return error("nothing to resume in {}: no deal was sealed; begin the case without --resume",
                   options.case_dir.string());
    if (options.warn)
      options.warn(fmt::format("nothing to resume in {}: beginning anew with seed {}", options.case_dir.string(),
                               *options.seed));
  }
  if (used && !options.resume)
    return error("{}: is not empty; continue it with --resume, or choose another --case", options.case_dir.string());
  std::filesystem::create_directories(options.case_dir, failed);
  if (failed) return error("{}: cannot be created: {}", options.case_dir.string(), failed.message());
  return {};
}

// Starts the dealer and keeps its promise in the case folder before anything else happens.
Result<SealedDeal> seal(const DemoOptions& options, const std::optional<Commitment>& before) {
  auto deal = SealedDeal::start({.executable = options.executable,
                                 .envelope = envelope_of(options.case_dir),
                                 .stratum = options.stratum,
                                 .all_kinds = options.all_kinds,
                                 .seed = options.seed,
                                 .resume = options.resume,
                                 .commitment = before ? before->sha256 : ""});
  if (!deal) return deal;
  if (before && deal->probe_seed() != before->probe_seed)
    return error("{}: probe seed {} is not the {} of the dealer", commitment_file(options).string(), before->probe_seed,
                 deal->probe_seed());
  if (!before) {
    const ordered_json json{{"commitment", deal->commitment()}, {"probe_seed", deal->probe_seed()}};
    if (auto written = write_file_durably(commitment_file(options), json.dump(2) + "\n"); !written)
      return tl::unexpected(written.error());
  }
  if (options.say)
    options.say(
        fmt::format("sealed: sha256 {} (envelope {})", deal->commitment(), envelope_of(options.case_dir).string()));
  return deal;
}

std::string how_to_go_on(const DemoOptions& options) {
  return fmt::format("go on with: plumb demo --case {} --resume", options.case_dir.string());
}

// The verdict of an earlier run, or a new one; on disk in both cases.
Result<std::string> reach_verdict(const DemoOptions& options, const Investigation& investigate) {
  if (options.resume && std::filesystem::exists(verdict_file(options))) return read_file(verdict_file(options));
  const auto before = read_commitment(options);
  if (!before) return tl::unexpected(before.error());
  auto deal = seal(options, *before);
  if (!deal) return tl::unexpected(deal.error());
  const auto dealer_lives = [&]() -> Result<void> {
    if (const auto alive = deal->alive(); !alive) return error("{}; {}", alive.error().message, how_to_go_on(options));
    return {};
  };
  const DemoCase blind{.deployment = options.case_dir / "deployment.toml",
                       .case_dir = options.case_dir,
                       .probe_seed = deal->probe_seed(),
                       .resume = options.resume,
                       .surroundings = dealer_lives};
  if (auto written =
          write_file_durably(blind.deployment, demo_deployment(options, deal->socket(), deal->deployed_off()));
      !written)
    return tl::unexpected(written.error());
  auto verdict = investigate(blind);
  if (!verdict) return verdict;
  // Before the verdict is there for good: without a dealer the last launches may not have been what they should be.
  if (auto ended = deal->end(); !ended) return error("{}; {}", ended.error().message, how_to_go_on(options));
  if (auto written = write_file_durably(verdict_file(options), *verdict); !written)
    return tl::unexpected(written.error());
  return verdict;
}

std::filesystem::path result_file(const DemoOptions& options) { return options.case_dir / "result.json"; }

// The seconds that a finished demo recorded; empty when it is not finished.
std::optional<double> recorded_seconds(const DemoOptions& options) {
  std::error_code ignored;
  if (!options.resume || !std::filesystem::exists(result_file(options), ignored)) return std::nullopt;
  const auto text = read_file(result_file(options));
  if (!text) return std::nullopt;
  const auto json = ordered_json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("seconds") || !json["seconds"].is_number()) return std::nullopt;
  return json["seconds"].get<double>();
}

ordered_json fault_json(const PlantedFault& fault) {
  return {{"kind", fault.kind},
          {"form", fault.form},
          {"switch", fault.host == "none" ? ordered_json() : ordered_json(fault.host)},
          {"severity", fault.severity},
          {"layers", fault.layers}};
}

// The first plant's keys stand at the top, kind "none" for nothing; others are listed beside them.
ordered_json planted_json(const Planted& planted) {
  ordered_json json =
      fault_json(planted.faults.empty() ? PlantedFault{.kind = "none", .host = "none"} : planted.faults.front());
  json["seed"] = planted.seed;
  json["stratum"] = planted.stratum;
  json["also"] = ordered_json::array();
  for (std::size_t i = 1; i < planted.faults.size(); ++i) json["also"].push_back(fault_json(planted.faults[i]));
  json["launch_rate"] = planted.rate;
  json["masked_by"] = planted.masked_by.empty() ? ordered_json() : ordered_json(planted.masked_by);
  return json;
}

// What the deployment file calls each switch.
std::map<std::string, std::string> deployed_names(const DemoOptions& options) {
  std::map<std::string, std::string> names;
  for (const DemoSwitch& entry : options.switches)
    names[entry.name] = options.anonymous ? fmt::format("s{:02}", names.size() + 1) : entry.name;
  return names;
}

}  // namespace

std::filesystem::path envelope_of(const std::filesystem::path& case_dir) {
  // "case/" and "case/." name the folder that "case" names; what is appended to them would lie in it.
  std::filesystem::path folder = case_dir.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.string() + ".envelope.json";
}

std::string demo_deployment(const DemoOptions& options, const std::string& dealer_socket,
                            const std::vector<std::string>& deployed_off) {
  std::string text = fmt::format(
      "[deployment]\n"
      "name = \"demo\"\n"
      "\n"
      "[[process]]\n"
      "name = \"server\"\n"
      "command = [{}, \"serve\", {}, \"--port\", \"{{port:server}}\", \"--backend\", {}]\n"
      "env = {{ PLUMB_DEALER = {} }}\n"
      "ready = {{ http = \"/health\", generate = true }}\n"
      "\n"
      "[[endpoint]]\n"
      "url = \"http://127.0.0.1:{{port:server}}\"\n"
      "api = \"completions\"\n"
      "max_in_flight = 1\n",
      quoted(options.executable.string()), quoted(options.model.string()), quoted(options.backend),
      quoted(dealer_socket));
  text += "\n[facts]\n";
  for (const auto& [name, value] : options.facts) text += fmt::format("{} = {}\n", name, value);
  const auto names = deployed_names(options);
  for (const DemoSwitch& entry : options.switches) {
    const bool on = entry.deployed_on && std::ranges::find(deployed_off, entry.name) == deployed_off.end();
    // A mask is looked for when the server starts: there each launch must say its sides.
    const bool by_request = entry.by_request && options.stratum != "masked";
    const auto side = [&](const char* word) {
      return by_request
                 ? fmt::format("body = {{ plumb = {{ switches = {{ {} = \"{}\" }} }} }}", quoted(entry.name), word)
                 : fmt::format("args = [\"--set\", {}]", quoted(entry.name + "=" + word));
    };
    text += fmt::format(
        "\n"
        "[[switch]]\n"
        "name = {}\n"
        "{}"
        "sides = {{ off = {{ {} }}, on = {{ {} }} }}\n"
        "deployed = \"{}\"\n",
        quoted(names.at(entry.name)), by_request ? "apply = \"request\"\n" : "", side("off"), side("on"),
        on ? "on" : "off");
    if (entry.shift >= 0) text += fmt::format("shift = {}\n", entry.shift);
  }
  return text;
}

Result<Comparison> compare_with_planted(const std::string& verdict_json, const Planted& planted,
                                        const std::map<std::string, std::string>& names) try {
  if (const auto valid = parse_json_strictly(verdict_json, "the verdict"); !valid) return tl::unexpected(valid.error());
  const auto json = ordered_json::parse(verdict_json);
  const std::string verdict = json.at("verdict");
  if (verdict == "inconclusive") return Comparison{.match = false, .exit_code = 2};

  using Literal = std::pair<std::string, std::string>;  // switch and wrong side
  const auto called = [&](const std::string& name) { return names.contains(name) ? names.at(name) : name; };
  std::set<Literal> accused, expected, optional;
  for (const auto& culprit : json.at("culprits"))
    accused.emplace(culprit.at("switch").get<std::string>(), culprit.at("side").get<std::string>());
  for (const PlantedFault& fault : planted.faults)
    if (fault.host != "none") expected.insert({called(fault.host), planted.stratum == "off-side" ? "off" : "on"});
  if (!planted.masked_by.empty()) optional.insert({called(planted.masked_by), "off"});
  std::set<Literal> surplus;
  std::ranges::set_difference(accused, expected, std::inserter(surplus, surplus.end()));

  const bool clean = planted.faults.empty();
  const bool word = clean              ? verdict == "clean"
                    : expected.empty() ? verdict == "unexplained"
                                       : verdict == "confirmed" || verdict == "suspected";
  const bool match = word && std::ranges::includes(accused, expected) && std::ranges::includes(optional, surplus);
  if (!match) return Comparison{.match = false, .exit_code = 3};
  return Comparison{.match = true, .exit_code = clean ? 0 : 1};
} catch (const ordered_json::exception& e) {
  return error("the verdict is not one: {}", e.what());
}

Result<DemoResult> run_demo(const DemoOptions& options, const Investigation& investigate) {
  const auto started = std::chrono::steady_clock::now();
  if (auto valid = check_options(options); !valid) return tl::unexpected(valid.error());
  if (auto prepared = prepare_case(options); !prepared) return tl::unexpected(prepared.error());
  const bool begun = options.resume && std::filesystem::exists(commitment_file(options));
  const auto verdict = reach_verdict(options, investigate);
  if (!verdict) return tl::unexpected(verdict.error());

  const auto commitment = read_commitment(options);
  if (!commitment) return tl::unexpected(commitment.error());
  if (!*commitment) return error("{}: is missing", commitment_file(options).string());
  const auto planted = open_envelope(envelope_of(options.case_dir), (*commitment)->sha256);
  if (!planted) return tl::unexpected(planted.error());
  if (options.seed && *options.seed != planted->seed)
    return error("{}: the case was dealt with seed {}, not {}; resume it without --seed", options.case_dir.string(),
                 planted->seed, *options.seed);
  const auto comparison = compare_with_planted(*verdict, *planted, deployed_names(options));
  if (!comparison) return tl::unexpected(comparison.error());

  DemoResult result{.planted = *planted, .match = comparison->match, .exit_code = comparison->exit_code};
  result.commitment = (*commitment)->sha256;
  result.resumed = begun;
  const auto recorded = recorded_seconds(options);
  result.seconds = recorded.value_or(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  auto json = ordered_json::parse(*verdict);
  result.verdict = json.at("verdict");
  json["planted"] = planted_json(*planted);
  json["match"] = result.match;
  json["seconds"] = result.seconds;
  result.json = json.dump(2) + "\n";
  if (!recorded)
    if (auto written = write_file_durably(result_file(options), result.json); !written)
      return tl::unexpected(written.error());
  return result;
}

}  // namespace plumb::investigator

#include "investigator/demo.h"

#include <chrono>

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
  if (options.faults < 0 || options.faults > 1)
    return error("demo: {} faults; there can be 0 or 1 (--faults)", options.faults);
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
                                 .faults = options.faults,
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
  if (auto written = write_file_durably(blind.deployment, demo_deployment(options, deal->socket())); !written)
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

ordered_json planted_json(const Planted& planted) {
  return {{"kind", planted.kind},
          {"form", planted.form},
          {"switch", planted.host.empty() ? ordered_json() : ordered_json(planted.host)},
          {"severity", planted.severity},
          {"layers", planted.layers},
          {"seed", planted.seed}};
}

}  // namespace

std::filesystem::path envelope_of(const std::filesystem::path& case_dir) {
  // "case/" and "case/." name the folder that "case" names; what is appended to them would lie in it.
  std::filesystem::path folder = case_dir.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.string() + ".envelope.json";
}

std::string demo_deployment(const DemoOptions& options, const std::string& dealer_socket) {
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
  for (const DemoSwitch& entry : options.switches) {
    text += fmt::format(
        "\n"
        "[[switch]]\n"
        "name = {}\n"
        "sides = {{ off = {{ args = [\"--set\", {}] }}, on = {{ args = [\"--set\", {}] }} }}\n"
        "deployed = \"{}\"\n",
        quoted(entry.name), quoted(entry.name + "=off"), quoted(entry.name + "=on"), entry.deployed_on ? "on" : "off");
    if (entry.shift >= 0) text += fmt::format("shift = {}\n", entry.shift);
  }
  return text;
}

Result<Comparison> compare_with_planted(const std::string& verdict_json, const Planted& planted) try {
  if (const auto valid = parse_json_strictly(verdict_json, "the verdict"); !valid) return tl::unexpected(valid.error());
  const auto json = ordered_json::parse(verdict_json);
  const std::string verdict = json.at("verdict");
  if (verdict == "inconclusive") return Comparison{.match = false, .exit_code = 2};
  const bool accused = verdict == "confirmed" || verdict == "suspected";
  const auto& culprits = json.at("culprits");
  bool match = false;
  if (planted.kind == "none")
    match = verdict == "clean" && culprits.empty();
  else if (accused && culprits.size() == 1)
    match = culprits[0].at("switch") == planted.host && culprits[0].at("side") == "on";
  if (!match) return Comparison{.match = false, .exit_code = 3};
  return Comparison{.match = true, .exit_code = planted.kind == "none" ? 0 : 1};
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
  const auto comparison = compare_with_planted(*verdict, *planted);
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

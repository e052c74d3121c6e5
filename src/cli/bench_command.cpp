#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "cli/commands.h"
#include "cli/demo_server.h"
#include "investigator/bench_isolate.h"
#include "investigator/bench_recorded.h"
#include "investigator/record_trials.h"
#include "runtime/bench.h"
#include "server/command_line.h"
#include "server/serve_command.h"

namespace plumb::cli {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr std::int64_t kMostBatch = 4096;
constexpr int kMostRepeats = 1000;

struct BenchArgs {
  std::string what;
  std::string backend = "cpu";
  std::vector<std::string> sets;
  bool json = false;
  std::optional<std::int64_t> tokens, batch;
  BenchOptions options;
  investigator::IsolateBenchOptions isolate;
  std::string record, recorded;
  int questions = 6;
  int launches = 2;
  std::string scoreboard;
};

nlohmann::ordered_json machine_json(const BenchMachine& machine) {
  return {{"isa", machine.isa},
          {"threads", machine.threads},
          {"gflops", machine.operations_per_second / 1e9},
          {"read_bytes", machine.read_bytes},
          {"read_gb_per_s", machine.bytes_per_second / 1e9}};
}

void print_machine(const BenchMachine& machine) {
  fmt::print("machine: {} threads, {}: {:.0f} GFLOP/s f32, {:.0f} GB/s from {:.1f} MB\n", machine.threads, machine.isa,
             machine.operations_per_second / 1e9, machine.bytes_per_second / 1e9,
             static_cast<double>(machine.read_bytes) / 1e6);
}

void print_result(const BenchResult& result, bool json) {
  if (json) {
    nlohmann::ordered_json runs = nlohmann::ordered_json::array();
    for (const BenchRun& run : result.runs)
      runs.push_back({{"seconds", run.seconds}, {"processor_seconds", run.processor_seconds}});
    fmt::print("{}\n", nlohmann::ordered_json{{"bench", result.what},
                                              {"tokens", result.tokens},
                                              {"tokens_per_second", result.best()},
                                              {"median_tokens_per_second", result.median()},
                                              {"tokens_per_processor_second", result.per_processor_second()},
                                              {"limit_tokens_per_second", result.limit},
                                              {"limited_by", result.limited_by},
                                              {"ratio", result.best() / result.limit},
                                              {"machine", machine_json(result.machine)},
                                              {"runs", runs}}
                           .dump(2));
    return;
  }
  print_machine(result.machine);
  fmt::print("{}: {:.0f} tok/s ({} runs of {} tokens; median {:.0f}; {:.0f} a processor second)\n", result.what,
             result.best(), result.runs.size(), result.tokens, result.median(), result.per_processor_second());
  fmt::print("limit: {:.0f} tok/s by {}; ratio {:.2f}\n", result.limit, result.limited_by,
             result.best() / result.limit);
}

void print_ops(const OpsResult& result, bool json) {
  if (json) {
    nlohmann::ordered_json ops = nlohmann::ordered_json::array();
    for (const OpResult& op : result.ops)
      ops.push_back({{"op", op.name},
                     {"seconds", op.seconds},
                     {"gflops", op.operations / op.seconds / 1e9},
                     {"gb_per_s", op.bytes / op.seconds / 1e9},
                     {"limit_seconds", op.limit_seconds},
                     {"ratio", op.limit_seconds / op.seconds}});
    fmt::print("{}\n",
               nlohmann::ordered_json{
                   {"bench", "op"}, {"rows", result.rows}, {"machine", machine_json(result.machine)}, {"ops", ops}}
                   .dump(2));
    return;
  }
  print_machine(result.machine);
  fmt::print("{} rows\n{:<34} {:>10} {:>9} {:>8} {:>10} {:>6}\n", result.rows, "op", "us", "GFLOP/s", "GB/s",
             "limit us", "ratio");
  for (const OpResult& op : result.ops)
    fmt::print("{:<34} {:>10.2f} {:>9.1f} {:>8.1f} {:>10.2f} {:>6.2f}\n", op.name, op.seconds * 1e6,
               op.operations / op.seconds / 1e9, op.bytes / op.seconds / 1e9, op.limit_seconds * 1e6,
               op.limit_seconds / op.seconds);
}

int say_scores(const BenchArgs& args, const std::string& markdown, const std::string& json) {
  fmt::print("{}\n", args.json ? json : markdown);
  return kClean;
}

int run_recording(const BenchArgs& args) {
  const auto server = demo_server();
  if (!server) return fail(server.error().message);
  const auto plants = investigator::plants_of(server->executable);
  if (!plants) return fail(plants.error().message);
  investigator::RecordOptions options{
      .deployed = *server, .file = args.record, .logs = {}, .plants = *plants, .say = {}};
  options.deployed.backend = args.backend;
  options.logs = args.record + ".logs";
  options.questions = args.questions;
  options.launches = args.launches;
  options.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const auto recording = investigator::record_trials(options);
  if (!recording) return fail(recording.error().message);
  std::error_code ignored;
  std::filesystem::remove_all(options.logs, ignored);
  fmt::print("{}: {} launches of {} plants\n", args.record, recording->rows.size(), plants->size() - 1);
  return kClean;
}

int run_recorded_bench(const BenchArgs& args) {
  const auto recording = investigator::read_recording(args.recorded);
  if (!recording) return fail(recording.error().message);
  const auto result = investigator::bench_recorded(
      *recording,
      {.investigations = args.isolate.investigations, .switches = args.isolate.switches, .seed = args.isolate.seed});
  if (!result) return fail(fmt::format("{}: {}", args.recorded, result.error().message));
  const std::string section = investigator::recorded_bench_markdown(*result, args.recorded);
  if (!args.scoreboard.empty()) {
    const std::string simulated =
        investigator::isolate_bench_markdown(investigator::bench_isolate(args.isolate), args.recorded);
    if (auto written = write_file_durably(args.scoreboard, simulated + "\n" + section); !written)
      return fail(written.error().message);
  }
  return say_scores(args, section, investigator::recorded_bench_json(*result));
}

int run_isolate_bench(const BenchArgs& args) {
  if (!args.record.empty()) return run_recording(args);
  if (!args.recorded.empty()) return run_recorded_bench(args);
  const investigator::IsolateBenchResult result = investigator::bench_isolate(args.isolate);
  const std::string markdown = investigator::isolate_bench_markdown(result);
  if (!args.scoreboard.empty())
    if (auto written = write_file_durably(args.scoreboard, markdown); !written) return fail(written.error().message);
  return say_scores(args, markdown, investigator::isolate_bench_json(result));
}

int run_bench(BenchArgs args) {
  if (args.what == "isolate") return run_isolate_bench(args);
  if (args.options.model.empty()) return fail("MODEL is required: the folder of the checkpoint");
  const auto backend = parse_backend(args.backend);
  if (!backend) return fail(backend.error().message);
  args.options.backend = *backend;
  const auto settings = server::launch_settings(args.sets, Settings());
  if (!settings) return fail(settings.error().message);
  args.options.settings = *settings;
  args.options.tokens = args.tokens.value_or(args.what == "decode" ? 256 : 2048);
  args.options.batch = args.batch.value_or(args.what == "op" ? 128 : 1);
  if (args.what == "op") {
    const auto result = bench_ops(args.options);
    if (!result) return fail(result.error().message);
    print_ops(*result, args.json);
    return kClean;
  }
  const auto result = args.what == "decode" ? bench_decode(args.options) : bench_prefill(args.options);
  if (!result) return fail(result.error().message);
  print_result(*result, args.json);
  return kClean;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "tokens a second of a checkpoint beside the limit of this machine; the search for culprits in simulated worlds");
  auto args = std::make_shared<BenchArgs>();
  command
      ->add_option("WHAT", args->what,
                   "prefill, decode, op: the ops one by one, or isolate: the search for culprits in simulated worlds")
      ->required()
      ->check(CLI::Validator(
          [](const std::string& what) {
            const bool known = what == "prefill" || what == "decode" || what == "op" || what == "isolate";
            return known ? std::string() : std::string("must be prefill, decode, op or isolate");
          },
          "", ""));
  command->add_option("MODEL", args->options.model, "folder of the checkpoint; not for isolate");
  server::takes_whole(
      command->add_option("--tokens", args->tokens, "of the prompt (2048), or there before decoding starts (256)"), 1,
      kMostTokens);
  server::takes_whole(command->add_option("--batch", args->batch, "sequences (1); op: rows of one call (128)"), 1,
                      kMostBatch);
  server::takes_whole(
      command->add_option("--chunk", args->options.chunk, "prompt tokens of one pass; 0: all")->capture_default_str(),
      0, kMostTokens);
  server::takes_whole(command->add_option("--threads", args->options.threads, "threads that compute; 0: all cores"), 0,
                      256);
  server::takes_whole(
      command->add_option("--repeats", args->options.repeats, "runs that are timed")->capture_default_str(), 1,
      kMostRepeats);
  server::takes_backend(
      command->add_option("--backend", args->backend, "who computes: cpu or ref")->capture_default_str());
  command->add_option("--set", args->sets, "a switch: NAME=on|off[@LAYERS]; may be repeated; all others are off")
      ->allow_extra_args(false);
  constexpr int kMostInvestigations = 1'000'000;
  constexpr int kMostRecorded = 100;
  constexpr int kMostSwitches = 30;  // sets of three are searched up to here
  server::takes_whole(command->add_option("--investigations", args->isolate.investigations, "isolate: over all worlds")
                          ->capture_default_str(),
                      1, kMostInvestigations);
  server::takes_whole(
      command->add_option("--switches", args->isolate.switches, "isolate: of each world")->capture_default_str(), 4,
      kMostSwitches);
  server::takes_seed(command->add_option("--seed", args->isolate.seed, "isolate: equal seeds give equal numbers")
                         ->capture_default_str());
  auto* record =
      command->add_option("--record", args->record,
                          "isolate: ask the demo's server with each fault planted in turn, and write what it "
                          "answers into this file; what it holds already is not asked again");
  server::takes_whole(command->add_option("--questions", args->questions, "isolate --record: of each probe")
                          ->needs(record)
                          ->capture_default_str(),
                      1, kMostRecorded);
  server::takes_whole(command->add_option("--launches", args->launches, "isolate --record: of each plant")
                          ->needs(record)
                          ->capture_default_str(),
                      1, kMostRecorded);
  command->add_option("--recorded", args->recorded, "isolate: draw the trials of all investigations from this file")
      ->excludes(record);
  command->add_option("--scoreboard", args->scoreboard, "isolate: write all tables into this Markdown file");
  command->add_flag("--json", args->json, "print one JSON document");
  command->callback([args, &exit_code] { exit_code = run_bench(*args); });
}

}  // namespace plumb::cli

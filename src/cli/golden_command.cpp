#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "cli/commands.h"
#include "engine/golden.h"
#include "model/config.h"
#include "model/encoding.h"
#include "server/command_line.h"
#include "tensor/strict_json.h"
#include "weights/model.h"

namespace plumb::cli {
namespace {

struct GoldenArgs {
  std::string model;
  std::string ids_file;
  std::string prompt_file;
  std::int64_t chunk = 0;
  std::string profile = "math";
  std::string out;
  bool json = false;
};

Result<std::vector<std::int32_t>> read_ids(const GoldenArgs& args) {
  const auto text = read_file(args.ids_file.empty() ? args.prompt_file : args.ids_file);
  if (!text) return tl::unexpected(text.error());
  if (args.ids_file.empty()) {
    const auto config = load_model_config(args.model);
    if (!config) return tl::unexpected(config.error());
    const auto encoding = load_encoding(args.model, *config);
    if (!encoding) return tl::unexpected(encoding.error());
    return (*encoding)->encode(*text);
  }
  const auto json = parse_json_strictly(*text, args.ids_file);
  if (!json) return tl::unexpected(json.error());
  if (!json->is_array()) return error("{}: must be a JSON array of token ids", args.ids_file);
  std::vector<std::int32_t> ids;
  for (const auto& id : *json) {
    if (!id.is_number_unsigned() || id > 0x7fffffff)
      return error("{}: {} at index {} is not a token id", args.ids_file, shown(id), ids.size());
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

int run_golden(const GoldenArgs& args) {
  // The official profile simulates the release's quantisers; this engine computes the math profile only.
  if (args.profile != "math") return fail(fmt::format("golden: --profile {}: only math is there", args.profile));
  if (args.ids_file.empty() == args.prompt_file.empty()) return fail("golden: give either --ids or --prompt");
  const auto ids = read_ids(args);
  if (!ids) return fail(ids.error().message);
  auto model = load_model(args.model);
  if (!model) return fail(model.error().message);
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 256);
  Engine engine(std::make_shared<const Model>(std::move(*model)), std::make_shared<ThreadPool>(threads), Backend::ref);
  if (const auto written = write_golden(engine, *ids, args.chunk, args.out); !written)
    return fail(written.error().message);
  if (args.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"trace", args.out}, {"tokens", ids->size()}}.dump());
  else
    fmt::print("{}: {} tokens\n", args.out, ids->size());
  return kClean;
}

}  // namespace

void add_golden_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("golden", "write the trace of a prompt with every switch off");
  auto args = std::make_shared<GoldenArgs>();
  command->add_option("MODEL", args->model, "folder of the checkpoint")->required();
  command->add_option("--ids", args->ids_file, "file with a JSON array of token ids");
  command->add_option("--prompt", args->prompt_file, "file with a text");
  server::takes_whole(
      command->add_option("--chunk", args->chunk, "prompt tokens of one pass; 0: all")->capture_default_str(), 0,
      std::numeric_limits<std::int64_t>::max());
  command->add_option("--profile", args->profile, "the model's meaning: math")->capture_default_str();
  command->add_option("-o,--out", args->out, "trace file to write (safetensors)")->required();
  command->add_flag("--json", args->json, "print one JSON document");
  command->callback([args, &exit_code] { exit_code = run_golden(*args); });
}

}  // namespace plumb::cli

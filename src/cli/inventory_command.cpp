#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "investigator/rank/rank.h"

namespace plumb::cli {
namespace {

namespace inventory = investigator::inventory;

struct Args {
  std::string repository, range;
  bool json = false;
  investigator::rank::RankOptions rank;
};

// Paths and names may hold any bytes; JSON may not.
std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

int run_inventory(const Args& args) {
  const auto found = inventory::take_inventory(args.repository, args.range);
  if (!found) return fail(found.error().message);
  fmt::print("{}{}", args.json ? dump(inventory::to_json(*found)) : inventory::to_text(*found), args.json ? "\n" : "");
  return found->numerical() > 0 ? kFinding : found->covered() ? kClean : kInconclusive;
}

int run_rank(const Args& args) {
  const auto found = inventory::take_inventory(args.repository, args.range);
  if (!found) return fail(found.error().message);
  const auto ranking = investigator::rank::rank(*found, args.rank);
  fmt::print("{}{}",
             args.json ? dump(investigator::rank::to_json(*found, ranking)) : investigator::rank::to_text(ranking),
             args.json ? "\n" : "");
  return found->numerical() > 0 ? kFinding : found->covered() ? kClean : kInconclusive;
}

std::shared_ptr<Args> add_range(CLI::App* command) {
  auto args = std::make_shared<Args>();
  command->add_option("REPO", args->repository, "folder of the git repository")->required();
  command->add_option("A..B", args->range, "range of revisions; A...B starts at their merge base")->required();
  command->add_flag("--json", args->json, "print one JSON document");
  return args;
}

}  // namespace

void add_inventory_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("inventory", "list the numerical changes of a range of git revisions");
  auto args = add_range(command);
  command->callback([args, &exit_code] { exit_code = run_inventory(*args); });
}

void add_rank_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("rank", "rank the changes of a range of git revisions as suspects");
  auto args = add_range(command);
  constexpr int kMostLayers = 10'000;
  command->add_option("--layers", args->rank.layers, "layers of the model")
      ->check(CLI::Range(1, kMostLayers))
      ->capture_default_str();
  command
      ->add_option("--symptom", args->rank.symptoms,
                   "probes that failed: short, turns, needle, boundary, hit, crowd, decode, repeat, pd, repetition")
      ->delimiter(',')
      ->check([](const std::string& name) {
        return investigator::rank::is_symptom(name) ? "" : "'" + name + "' is no probe; see --help";
      });
  command->callback([args, &exit_code] { exit_code = run_rank(*args); });
}

}  // namespace plumb::cli

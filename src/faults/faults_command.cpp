#include "faults/faults_command.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "faults/check/check.h"
#include "faults/check/docs.h"
#include "faults/plants.h"
#include "faults/recorded.h"
#include "server/command_line.h"

namespace plumb::faults {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kDiffers = 1, kError = 3;
constexpr int kMostProcesses = 256;

struct Options {
  bool json = false, check = false;
  std::string docs, record;
  CheckOptions checked;
};

int fail(const std::string& message) {
  std::fprintf(stderr, "plumb-faulty: faults: %s\n", message.c_str());
  return kError;
}

// Two folders above build/release/plumb-faulty, unless PLUMB_HOME names another repository.
Result<std::string> shipped_phantom() {
  const char* named = std::getenv("PLUMB_HOME");
  std::error_code failed;
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  const fs::path home = named != nullptr ? fs::path(named) : executable.parent_path().parent_path().parent_path();
  if (!fs::exists(home / "phantom" / "config.json"))
    return error("{}: has no phantom/; name a model or set PLUMB_HOME to the folder of the repository", home.string());
  return (home / "phantom").string();
}

std::string_view side_name(PlantSide side) {
  return side == PlantSide::on ? "on" : side == PlantSide::off ? "off" : "step";
}

Json plant_json(const Plant& plant) {
  return {{"kind", plant.kind}, {"form", plant.form},         {"host", plant.host},           {"site", plant.site},
          {"what", plant.what}, {"severity", plant.severity}, {"layers", plant.layers},       {"prior", plant.prior},
          {"note", plant.note}, {"demo", plant.demo},         {"side", side_name(plant.side)}};
}

Json recorded_json(const Recorded& r) {
  return {{"site", r.site},         {"signature", r.signature},       {"d_cold", r.d_cold},
          {"d_hit", r.d_hit},       {"d_decode", r.d_decode},         {"flips", r.flips},
          {"passages", r.passages}, {"lost_answers", r.lost_answers}, {"lost_nats", r.lost_nats},
          {"word", r.word}};
}

int list_plants(const Options& options) {
  Json table = Json::array();
  for (const Plant& plant : plants()) {
    Json entry = plant_json(plant);
    const Recorded* r = find_recorded(plant.kind, plant.form);
    if (r != nullptr) entry["recorded"] = recorded_json(*r);
    table.push_back(entry);
    if (!options.json)
      fmt::print("{} ({}) on {}, first seen at {}\n  {}\n  {}\n", plant.kind, plant.form, plant.host, plant.site,
                 plant.what, r == nullptr ? "not measured" : fmt::format("{}: {}", r->word, r->signature));
  }
  if (options.json) fmt::print("{}\n", Json{{"plants", table}}.dump(2));
  return 0;
}

int write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? 0 : fail(path + ": cannot be written");
}

int check(Options& options) {
  if (options.checked.model.empty()) {
    auto found = shipped_phantom();
    if (!found) return fail(found.error().message);
    options.checked.model = *found;
  }
  const auto checked = check_plants(options.checked);
  if (!checked) return fail(checked.error().message);
  Json table = Json::array();
  int differing = 0;
  for (const Checked& c : *checked) {
    const Outcome& o = c.outcome;
    const std::string signature = signature_text(o.signature);
    differing += !c.complaint.empty();
    Json entry = plant_json(*c.plant);
    entry["measured"] = recorded_json({.kind = c.plant->kind,
                                       .form = c.plant->form,
                                       .site = o.site,
                                       .signature = signature,
                                       .d_cold = o.d_cold,
                                       .d_hit = o.d_hit,
                                       .d_decode = o.d_decode,
                                       .flips = o.flips,
                                       .passages = o.passages,
                                       .lost_answers = o.lost_answers,
                                       .lost_nats = o.lost_nats,
                                       .word = o.word});
    entry["difference"] = c.complaint;
    table.push_back(entry);
    if (options.json) continue;
    fmt::print(
        "{} ({}): {}\n  {} ({}, prior {})\n  site {}; D {:.1e} cold, {:.1e} hit, {:.1e} decode; flips {}/{}; "
        "{} answers lost, {:.3f} nats\n",
        c.plant->kind, c.plant->form, o.word, signature, signature_letters(o.signature), c.plant->prior,
        o.site.empty() ? "none" : o.site, o.d_cold, o.d_hit, o.d_decode, o.flips, o.passages, o.lost_answers,
        o.lost_nats);
    if (!c.complaint.empty()) fmt::print("  differs: {}\n", c.complaint);
  }
  if (options.json)
    fmt::print("{}\n", Json{{"plants", table}, {"differing", differing}}.dump(2));
  else
    fmt::print("{} plants measured, {} differ from what is recorded\n", checked->size(), differing);
  if (!options.record.empty())
    if (const int failed = write(options.record, recorded_rows(*checked)); failed != 0) return failed;
  return differing > 0 ? kDiffers : 0;
}

int run(Options& options) {
  if (!options.docs.empty()) return write(options.docs, faults_document());
  return options.check ? check(options) : list_plants(options);
}

}  // namespace

void add_faults_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("faults", "list the plants; measure them on the phantom");
  auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "print one JSON document");
  CLI::Option* check_flag = command->add_flag(
      "--check", options->check, "measure each plant and compare with what is recorded; exit 1 if one differs");
  command->add_option("--kind", options->checked.kinds, "measure only plants of this kind")->needs(check_flag);
  command->add_option("--form", options->checked.form, "measure only plants of this form")->needs(check_flag);
  command->add_option("--model", options->checked.model, "folder of the phantom; default: the shipped one")
      ->needs(check_flag);
  server::takes_whole(command->add_option("--processes", options->checked.processes, "how many to measure at a time")
                          ->capture_default_str()
                          ->needs(check_flag),
                      1, kMostProcesses);
  command->add_option("--record", options->record, "write what was measured as src/faults/recorded.inc")
      ->needs(check_flag);
  command->add_option("--docs", options->docs, "write docs/faults.md from what is recorded")->excludes(check_flag);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace plumb::faults

#include "faults/faults_command.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "faults/check/check.h"
#include "faults/check/docs.h"
#include "faults/check/task_questions.h"
#include "faults/plants.h"
#include "faults/recorded.h"
#include "faults/sensitivity/card.h"
#include "server/command_line.h"

namespace plumb::faults {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kDiffers = 1, kIncomplete = 2, kError = 3;
constexpr std::int64_t kMostTokens = 1 << 20;
constexpr double kMostMinutes = 7 * 24 * 60;
constexpr int kMostProcesses = 256;

struct Options {
  bool json = false, check = false;
  std::string docs, record, sensitivity;
  CheckOptions checked;
  CardOptions card;
};

int fail(const std::string& message) {
  std::fprintf(stderr, "plumb-faulty: faults: %s\n", message.c_str());
  return kError;
}

// Two folders above build/release/plumb-faulty, unless PLUMB_HOME names another repository.
Result<fs::path> repository() {
  const char* named = std::getenv("PLUMB_HOME");
  std::error_code failed;
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  fs::path home = named != nullptr ? fs::path(named) : executable.parent_path().parent_path().parent_path();
  if (!fs::exists(home / "phantom" / "checkpoint" / "config.json"))
    return error("{}: has no phantom/checkpoint; set PLUMB_HOME to the folder of the repository", home.string());
  return home;
}

// The shipped phantom and its questions where none are named.
Result<void> find_subject(std::string& model, fs::path& questions) {
  if (!model.empty() && !questions.empty()) return {};
  const auto home = repository();
  if (!home) return tl::unexpected(home.error());
  if (model.empty()) model = *home / "phantom" / "checkpoint";
  if (questions.empty()) questions = task_questions_file(*home);
  return {};
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
  if (auto found = find_subject(options.checked.model, options.checked.questions); !found)
    return fail(found.error().message);
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

// Writes the card and its JSON, and keeps the journal until every cell is done.
int sensitivity(Options& options) {
  CardOptions& card = options.card;
  card.model = options.checked.model;
  card.questions = options.checked.questions;
  card.kinds = options.checked.kinds;
  card.processes = options.checked.processes;
  if (auto found = find_subject(card.model, card.questions); !found) return fail(found.error().message);
  const fs::path markdown = options.sensitivity;
  if (card.journal.empty()) card.journal = fs::path(markdown).replace_extension(".journal");
  const fs::path json = fs::path(markdown).replace_extension(".json");
  if (json == markdown || card.journal == markdown)
    return fail(fmt::format("{}: name a Markdown file; {} is written beside it", markdown.string(), json.string()));
  const auto measured = measure_card(card);
  if (!measured) return fail(measured.error().message);
  if (auto written = write_file_durably(markdown, card_markdown(*measured)); !written)
    return fail(written.error().message);
  if (auto written = write_file_durably(json, card_json(*measured)); !written) return fail(written.error().message);
  if (options.json) fmt::print("{}", card_json(*measured));
  if (measured->complete) return 0;
  std::fprintf(stderr, "plumb-faulty: faults: not complete; the same command goes on from %s\n", card.journal.c_str());
  return kIncomplete;
}

int run(Options& options) {
  const CheckOptions& given = options.checked;
  const bool measures = options.check || !options.sensitivity.empty();
  if (!measures && (!given.kinds.empty() || !given.model.empty() || !given.questions.empty()))
    return fail("--kind, --model and --questions say what to measure: add --check or --sensitivity FILE");
  if (!options.sensitivity.empty()) return sensitivity(options);
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
  CLI::Option* card = command
                          ->add_option("--sensitivity", options->sensitivity,
                                       "write FILE (Markdown) and its .json: how large each plant's effect is at each "
                                       "length, and how many trials show it. Goes on where it was stopped; exit 2 when "
                                       "not all is measured")
                          ->type_name("FILE")
                          ->excludes(check_flag);
  command->add_option("--kind", options->checked.kinds, "with --check or --sensitivity: only plants of this kind");
  command->add_option("--form", options->checked.form, "measure only plants of this form")->needs(check_flag);
  command->add_option("--model", options->checked.model, "folder of the phantom; default: the shipped one");
  command->add_option("--questions", options->checked.questions,
                      "questions of its tasks, as phantom/write_questions.py writes them; default: the shipped ones");
  server::takes_whole(command->add_option("--processes", options->checked.processes, "how many to measure at a time")
                          ->capture_default_str(),
                      1, kMostProcesses);
  command->add_option("--lengths", options->card.lengths, "tokens of the conversations")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, kMostTokens))
      ->capture_default_str()
      ->needs(card);
  command->add_option("--minutes", options->card.minutes, "begin nothing after so many; 0: no limit")
      ->check(CLI::Range(0.0, kMostMinutes))
      ->capture_default_str()
      ->needs(card);
  command
      ->add_option("--journal", options->card.journal,
                   "what was measured already, and is added to; default: FILE with .journal")
      ->needs(card);
  command->add_option("--record", options->record, "write what was measured as src/faults/recorded.inc")
      ->needs(check_flag);
  command->add_option("--docs", options->docs, "write docs/faults.md from what is recorded")
      ->excludes(check_flag)
      ->excludes(card);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace plumb::faults

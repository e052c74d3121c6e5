#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "weights/export.h"
#include "weights/model.h"

namespace plumb::cli {
namespace {

struct ExportArgs {
  std::string model;
  std::string form;
  std::string out;
  bool json = false;
};

void print_json(const ExportArgs& args, const ExportSummary& summary) {
  auto parts = nlohmann::ordered_json::array();
  for (const ExportPart& part : summary.parts)
    parts.push_back({{"format", part.format},
                     {"tensors", part.tensors},
                     {"weights", part.weights},
                     {"bytes", part.bytes},
                     {"error", part.error}});
  const nlohmann::ordered_json document{
      {"folder", args.out}, {"form", args.form}, {"bytes", summary.bytes}, {"parts", parts}};
  fmt::print("{}\n", document.dump());
}

void print_text(const ExportArgs& args, const ExportSummary& summary) {
  fmt::print("{}: {}, {} bytes of weights\n", args.out, args.form, summary.bytes);
  for (const ExportPart& part : summary.parts)
    fmt::print("  {:<10} {:>6} tensors {:>12} weights {:>12} bytes, relative error {:.2e}\n", part.format, part.tensors,
               part.weights, part.bytes, part.error);
}

int run_export(const ExportArgs& args) {
  const auto form = export_form_from_name(args.form);
  if (!form) return fail("export: --to is release, release-fp8-fp4 or nvfp4");
  if (args.out.empty()) return fail("export: --out: the name of the folder is empty");
  const auto model = load_model(args.model);
  if (!model) return fail(model.error().message);
  const auto summary = export_checkpoint(*model, *form, args.model, args.out);
  if (!summary) return fail(summary.error().message);
  if (args.json)
    print_json(args, *summary);
  else
    print_text(args, *summary);
  return kClean;
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("export", "write a checkpoint in the release's names and formats");
  auto args = std::make_shared<ExportArgs>();
  command->add_option("MODEL", args->model, "folder of the checkpoint")->required();
  command->add_option("--to", args->form, "release (bf16), release-fp8-fp4 or nvfp4")->required();
  command->add_option("--out", args->out, "folder to write; empty or not there yet")->required();
  command->add_flag("--json", args->json, "print one JSON document");
  command->callback([args, &exit_code] { exit_code = run_export(*args); });
}

}  // namespace plumb::cli

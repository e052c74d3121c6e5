#include <cstdio>
#include <cstdlib>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "faults/dealer.h"
#include "faults/faults_command.h"
#include "faults/plants.h"
#include "server/command_line.h"
#include "server/local_model.h"
#include "server/serve_command.h"

namespace {

constexpr int kError = 3;

int fail(const std::string& message) {
  std::fprintf(stderr, "plumb-faulty: %s\n", message.c_str());
  return kError;
}

// For tests only: which plant each seed draws. Nothing here knows an envelope or a probe seed.
int scan_seeds(std::uint64_t count, plumb::faults::Stratum stratum, bool all_kinds) {
  const auto table = plumb::faults::dealt_plants(all_kinds);
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    const auto deal = plumb::faults::draw(seed, stratum, table);
    if (!deal) return fail(deal.error().message);
    nlohmann::ordered_json line{{"seed", seed}};
    for (const plumb::faults::Dealt& plant : deal->plants) {
      nlohmann::ordered_json entry{{"kind", plant.kind}, {"form", plant.form}, {"host", plant.host}};
      if (&plant == &deal->plants.front())
        line.update(entry);
      else
        line["also"].push_back(std::move(entry));
    }
    fmt::print("{}\n", line.dump());
  }
  return 0;
}

void add_deal_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("deal", "seal a random plant and serve it until standard input closes");
  auto options = std::make_shared<plumb::faults::DealerOptions>();
  auto scan = std::make_shared<std::uint64_t>(0);
  command->add_option("--envelope", options->envelope, "file to seal the plant in (mode 0600; must not exist)");
  auto stratum = std::make_shared<std::string>("one");
  auto all_kinds = std::make_shared<bool>(false);
  command
      ->add_option("--stratum", *stratum,
                   "what sort of fault to plant: clean, one, two, stochastic, no-switch, off-side or masked")
      ->capture_default_str();
  command->add_flag("--all-kinds", *all_kinds, "draw from every plant that was seen to do damage, not from the demo's");
  command->add_flag("--resume", options->resume, "read the envelope again instead of drawing");
  command->add_option("--commitment", options->commitment, "with --resume: the SHA-256 the envelope must have");
  command->add_flag("--uncommitted", options->uncommitted,
                    "with --resume: nothing was announced yet, so seal a plant if there is no envelope");
  plumb::server::takes_seed(
      command->add_option("--scan", *scan, "print which plant each seed below this number draws; seal nothing"));
  command->callback([options, stratum, all_kinds, scan, &exit_code] {
    const auto named = plumb::faults::parse_stratum(*stratum);
    if (!named) {
      exit_code = fail("deal --stratum: " + named.error().message);
      return;
    }
    options->stratum = *named;
    if (*scan > 0) {
      exit_code = scan_seeds(*scan, *named, *all_kinds);
      return;
    }
    if (options->envelope.empty()) {
      exit_code = fail("deal: --envelope is required");
      return;
    }
    const auto done = run_dealer(*options, plumb::faults::dealt_plants(*all_kinds), STDIN_FILENO, STDOUT_FILENO);
    exit_code = done ? 0 : fail(done.error().message);
  });
}

// "KIND/FORM" or "none", for recordings: who asks for it knows what is planted.
plumb::Result<plumb::faults::Deal> named_plant(const std::string& name) {
  plumb::faults::Deal deal;
  if (name == "none") return deal;
  const auto slash = name.find('/');
  const auto* found =
      slash == std::string::npos
          ? nullptr
          : plumb::faults::find_plant(plumb::faults::plants(), name.substr(0, slash), name.substr(slash + 1));
  if (found == nullptr) return plumb::error("--plant {}: is no KIND/FORM of plumb-faulty faults", name);
  plumb::faults::Dose dose;
  dose.severity = found->severity;
  dose.layers = found->layers;
  dose.seed = 1;
  deal.plants.push_back(
      {std::string(found->kind), std::string(found->form), std::string(found->host), std::move(dose)});
  return deal;
}

plumb::Result<plumb::faults::Deal> dealt() {
  const char* socket = std::getenv(plumb::faults::kDealerVariable);
  if (socket == nullptr)
    return plumb::error("{} is not set; this server runs in a deal only", plumb::faults::kDealerVariable);
  return plumb::faults::ask_dealer(socket);
}

int serve(const plumb::server::ServeOptions& options, const std::string& named) {
  const auto deal = named.empty() ? dealt() : named_plant(named);
  if (!deal) return fail("serve: " + deal.error().message);
  const auto backend = plumb::parse_backend(options.backend);
  if (!backend) return fail("serve: " + backend.error().message);
  const auto settings = plumb::server::launch_settings(options.sets);
  if (!settings) return fail("serve: " + settings.error().message);
  if (const auto planted = plant(*deal, plumb::faults::plants(), *backend, *settings); !planted)
    return fail("serve: " + planted.error().message);
  return plumb::server::run_serve(options, &plumb::server::load_local_model);
}

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "as plumb serve, with what the dealer planted");
  auto options = std::make_shared<plumb::server::ServeOptions>();
  auto named = std::make_shared<std::string>();
  plumb::server::add_serve_options(*command, *options);
  command->add_option("--plant", *named, "plant KIND/FORM, or none, instead of asking a dealer: for recordings");
  command->callback([options, named, &exit_code] { exit_code = serve(*options, *named); });
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{"plumb with faults planted by a dealer: for plumb demo and for tests."};
  app.name("plumb-faulty");
  app.require_subcommand(1);
  int exit_code = 0;
  add_deal_command(app, exit_code);
  add_serve_command(app, exit_code);
  plumb::faults::add_faults_command(app, exit_code);
  return plumb::server::run_command_line(app, argc, argv, exit_code);
} catch (const std::exception& e) {
  return fail(e.what());
}

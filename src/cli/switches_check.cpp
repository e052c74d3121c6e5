#include "cli/switches_check.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "engine/shift.h"
#include "investigator/prompts/fixed_texts.h"
#include "model/encoding.h"

namespace plumb::cli {
namespace {

const char* verdict_of(const Shift& shift, const Switch& entry) {
  if (!shift.reached) return "not_covered";
  return shift.upper() <= entry.shift ? "within" : "over";
}

Result<std::vector<std::vector<std::int32_t>>> encode_texts(const std::string& folder) {
  const auto config = load_model_config(folder);
  if (!config) return tl::unexpected(config.error());
  const auto encoding = load_encoding(folder, *config);
  if (!encoding) return tl::unexpected(encoding.error());
  std::vector<std::vector<std::int32_t>> texts;
  for (const std::string& text : investigator::fixed_texts()) {
    texts.push_back((*encoding)->encode(text));
    if (static_cast<std::int64_t>(texts.back().size()) > config->max_positions) texts.pop_back();
  }
  if (texts.empty()) return error("{}: no fixed text fits its {} positions", folder, config->max_positions);
  return texts;
}

}  // namespace

int run_switch_check(const SwitchCheckArgs& args) {
  const auto backend = parse_backend(args.backend);
  if (!backend) return fail(backend.error().message);
  auto texts = encode_texts(args.model);
  if (!texts) return fail(texts.error().message);
  auto model = load_model(args.model);
  if (!model) return fail(model.error().message);
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 256);
  nlohmann::ordered_json json{{"model", model->hash}, {"backend", args.backend}, {"texts", texts->size()}};
  json["switches"] = nlohmann::ordered_json::array();
  ShiftMeter meter(std::make_shared<const Model>(std::move(*model)), std::make_shared<ThreadPool>(threads), *backend,
                   std::move(*texts));
  if (!meter.finite()) return fail("the model gave logits that are not finite; its weights or config are damaged");
  bool over = false;
  for (std::size_t i = 0; i < kSwitchCount; ++i) {
    const Switch& entry = kSwitches[i];
    if (!args.json) fmt::print(stderr, "{}\n", entry.name);
    const Shift shift = meter.measure(i);
    const std::string verdict = verdict_of(shift, entry);
    over |= verdict == "over";
    json["switches"].push_back({{"name", entry.name},
                                {"d_mean", shift.mean()},
                                {"d_upper", shift.upper()},
                                {"shift", entry.shift},
                                {"verdict", verdict}});
    if (args.json) continue;
    if (shift.reached)
      fmt::print("{:<22} D {:.2e}, largest {:.2e}, shift {:.2e}: {}\n", entry.name, shift.mean(), shift.upper(),
                 entry.shift, verdict);
    else
      fmt::print("{:<22} a step of the runtime: not covered here\n", entry.name);
  }
  if (args.json) fmt::print("{}\n", json.dump(2));
  return over ? kFinding : kClean;
}

}  // namespace plumb::cli

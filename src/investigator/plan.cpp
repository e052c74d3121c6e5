#include "investigator/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "investigator/operator_conversation.h"
#include "investigator/ranked_switches.h"
#include "investigator/restart_never.h"
#include "investigator/trial.h"

namespace plumb::investigator {
namespace {

// Launches, for a plan.
constexpr int kLeastGround = 4;
constexpr int kMostGround = 6;
constexpr int kUsualConfirmation = 6;

int tokens_of_trial(const std::string& cell, const Shape& shape) {
  int tokens = 0;
  for (const Ask& ask : make_item({cell, 1}, Wording::v4, shape).asks) tokens += ask.prompt_tokens;
  return tokens;
}

// The failing and the passing variant once more, then launches for 1.25 times the bits that name one of the switches.
int usual_search(std::size_t turned) {
  constexpr int kOnceMore = 2;
  constexpr double kOverBound = 1.25;
  turned = std::min(turned, GroupTest::kMostSuspects);
  if (turned == 0) return kOnceMore;
  std::vector<std::size_t> suspects(turned);
  std::iota(suspects.begin(), suspects.end(), std::size_t{0});
  const GroupTest test({.suspects = suspects, .bad = Variant(turned, true), .both_sides = false, .ranks = {}});
  const double bits = test.bits_to({Hypothesis::Class::any_of, {0}}, {true});
  return kOnceMore + static_cast<int>(std::ceil(kOverBound * bits));
}

}  // namespace

Result<Plan> make_plan(const Deployment& deployment, std::uint64_t seed, const Limits& limits) {
  auto cells = cells_of("all", {});
  if (!cells) return tl::unexpected(cells.error());
  const Shape shape = shape_of(deployment);
  std::vector<std::string> fitting;
  for (const std::string& cell : *cells) {
    const int least = least_prompt_tokens(cell, shape);
    if (shape.max_len > 0 && least > shape.max_len) continue;
    if (least > kMaxPromptTokens)
      return error(
          "[facts]: with this window, chunk and page the {} probe needs prompts of {} tokens or more; plumb "
          "makes at most {}: state smaller ones, or a max_len that leaves the probe out",
          cell, least, kMaxPromptTokens);
    const auto items = make_item({cell, 1}, Wording::v4, shape).asks;
    const bool fits =
        shape.max_len <= 0 || std::all_of(items.begin(), items.end(), [&](const Ask& a) {
          return a.prompt_tokens + std::max(a.max_tokens, deployment.request.answer_tokens) <= shape.max_len;
        });
    if (fits) fitting.push_back(cell);
  }
  if (deployment.given.conversation != nullptr) fitting.emplace_back(kConversationCell);
  if (fitting.empty()) return error("[facts] max_len {}: no probe is that short", shape.max_len);
  return Plan{deployment, seed, limits_of(deployment, limits), fitting};
}

// The environment of processes is left out: it holds
// sockets and keys that differ from run to run.
std::string hash_deployment(const Deployment& d) {
  std::string text;
  const auto add = [&](const std::string& part) { text += fmt::format("{}:{}", part.size(), part); };
  const auto add_all = [&](const std::vector<std::string>& parts) {
    add(std::to_string(parts.size()));
    for (const std::string& part : parts) add(part);
  };
  for (const ProcessSpec& p : d.processes) {
    add("process " + p.name);
    add(p.role);
    add(p.cwd);
    add_all(p.command);
    add_all(p.after);
    if (p.via != "local") add_all({p.via, p.host, p.image});
    if (p.via != "local") add_all(p.via_args);
    if (!p.gpus.empty() || !p.cpus.empty()) add(fmt::format("{} {}", fmt::join(p.gpus, ","), p.cpus));
  }
  for (const EndpointSpec& e : d.endpoints) add_all({e.url, e.api, e.model});
  add(d.request.extra);
  add(fmt::format("{} {}", d.request.temperature, d.request.answer_tokens));
  if (d.request.thinking_tokens > 0) add(fmt::format("thinking {}", d.request.thinking_tokens));
  if (!d.source.repository.empty()) add_all({"source", d.source.repository});
  if (!d.source.repository.empty()) add_all(d.source.build);
  for (const SwitchSpec& s : d.switches) {
    add(fmt::format("{} {} {}", s.name, s.deployed_on ? "on" : "off", s.working_off ? "" : "always"));
    for (const SwitchSide* side : {&s.off, &s.on})
      if (!side->patch.empty() || !side->endpoint.empty()) add_all({side->patch, side->endpoint});
    add(s.apply);
    for (const auto* names : {&s.processes, &s.needs, &s.conflicts}) add_all(*names);
    for (const SwitchSide* side : {&s.off, &s.on}) {
      add(std::to_string(side->env.size()));
      for (const auto& [key, value] : side->env) add(key + "=" + value);
      add_all(side->args);
      add(side->body);
    }
    if (s.shift >= 0) add(fmt::format("shift {}", s.shift));
  }
  for (const auto& [name, value] : d.facts) add(fmt::format("{}={}", name, value));
  if (d.given.ranks != nullptr) add_all({"ranks", d.given.ranks->hash});
  if (d.given.conversation != nullptr) add_all({"conversation", d.given.conversation->hash()});
  return hash_text(text);
}

Shape shape_of(const Deployment& deployment) {
  const auto fact = [&](const char* name) {
    const auto it = deployment.facts.find(name);
    return it == deployment.facts.end() ? 0 : static_cast<int>(it->second);
  };
  return {.window = fact("window"),
          .chunk = fact("chunk"),
          .page = fact("page"),
          .index_topk = fact("index_topk"),
          .max_len = fact("max_len"),
          .conversation = deployment.given.conversation};
}

Result<std::string> describe_plan(const Deployment& deployment, const Limits& limits) {
  auto plan = make_plan(deployment, 1, limits);
  if (!plan) return tl::unexpected(plan.error());
  const Variant deployed = as_deployed(deployment);
  const Variant reference = reference_variant(deployment);
  std::string out = fmt::format("as deployed: {}\nreference:   {}\n", describe(deployment, deployed),
                                describe(deployment, reference));
  out += fmt::format("budget: {} launches, {} minutes, {}\n", limits.max_restarts, limits.max_minutes,
                     plan->limits.max_tokens == 0 ? std::string("any number of tokens")
                                                  : fmt::format("{} tokens", plan->limits.max_tokens));
  if (deployment.given.conversation != nullptr)
    out += fmt::format("conversation: {}; it stays in the case folder\n", deployment.given.conversation->described());
  out += "probes and prompt tokens of one trial:\n";
  for (const std::string& cell : plan->cells) {
    out += fmt::format("  {:<14} {:>6}  {}\n", cell, tokens_of_trial(cell, shape_of(deployment)),
                       probe_of(cell).value()->asks);
  }
  int scored_tokens = 0;
  for (const ScoreItem& item : score_items(shape_of(deployment))) scored_tokens += item.length;
  out += fmt::format(
      "log-probabilities, where the server gives them: fixed texts of about {} prompt tokens, on the reference twice, "
      "as deployed, on what is confirmed, and on switches that may be over their shift\n",
      scored_tokens);
  std::size_t turned = 0;
  for (std::size_t i = 0; i < deployed.size(); ++i) turned += deployed[i] != reference[i] ? 1 : 0;
  out += fmt::format(
      "launches: {} to {} to measure as deployed and reference, and if something fails about {} in which groups of the "
      "{} switches are turned, then about {} fresh ones to confirm (more when launches differ from each other)\n",
      kLeastGround, kMostGround, usual_search(turned), turned, kUsualConfirmation);
  const auto by_request = std::count_if(deployment.switches.begin(), deployment.switches.end(),
                                        [](const SwitchSpec& s) { return s.apply == "request"; });
  if (by_request > 0 && deployment.restart == "allowed")
    out += fmt::format("{} switches are turned by requests: variants that differ in them alone share a launch\n",
                       by_request);
  return out + describe_priors(deployment);
}

Result<std::string> plan_json(const Deployment& deployment, const Limits& limits) {
  using Json = nlohmann::ordered_json;
  const auto plan = make_plan(deployment, 1, limits);
  if (!plan) return tl::unexpected(plan.error());
  const Variant deployed = as_deployed(deployment);
  const Variant reference = reference_variant(deployment);
  Json probes = Json::array();
  Json switches = Json::array();
  int tokens = 0;
  for (const std::string& cell : plan->cells) {
    probes.push_back({{"probe", cell},
                      {"prompt_tokens", tokens_of_trial(cell, shape_of(deployment))},
                      {"asks", probe_of(cell).value()->asks}});
    tokens += tokens_of_trial(cell, shape_of(deployment));
  }
  std::size_t turned = 0;
  const auto side = [](bool on) { return on ? "on" : "off"; };
  for (std::size_t i = 0; i < deployed.size(); ++i) {
    const SwitchSpec& spec = deployment.switches[i];
    switches.push_back({{"switch", spec.name},
                        {"deployed", side(deployed[i])},
                        {"reference", side(reference[i])},
                        {"cost_s", spec.cost_s}});
    turned += deployed[i] != reference[i] ? 1 : 0;
  }
  Json document{{"plan",
                 {{"deployed", describe(deployment, deployed)},
                  {"reference", describe(deployment, reference)},
                  {"budget",
                   {{"launches", limits.max_restarts},
                    {"minutes", limits.max_minutes},
                    {"prompt_tokens", plan->limits.max_tokens == 0 ? Json() : Json(plan->limits.max_tokens)}}},
                  {"probes", probes},
                  {"launches",
                   {{"ground", {{"least", kLeastGround}, {"most", kMostGround}}},
                    {"search_if_something_fails", usual_search(turned)},
                    {"confirmation_if_something_fails", kUsualConfirmation}}},
                  {"costs",
                   {{"prompt_tokens_of_one_trial_of_each_probe", tokens},
                    {"start_timeout_s", deployment.start_timeout_s},
                    {"switches", switches}}}}}};
  if (deployment.given.ranks != nullptr) {
    document["plan"]["priors"] = priors_json(deployment);
    document["plan"]["suspects_without_switch"] = unmatched_json(deployment);
  }
  if (deployment.given.conversation != nullptr)
    document["plan"]["conversation"] = deployment.given.conversation->described();
  // Places in a ranking may hold any bytes.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plumb::investigator

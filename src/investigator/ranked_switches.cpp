#include "investigator/ranked_switches.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <nlohmann/json.hpp>

#include "investigator/posterior.h"
#include "investigator/trial.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownUnmatched = 12;

// "--no-split_k=3" -> "split-k": how a flag is written differs between the source and the command line.
std::string flag_name(std::string text) {
  text = text.substr(0, text.find('='));
  text.erase(0, std::min(text.find_first_not_of('-'), text.size()));
  std::replace(text.begin(), text.end(), '_', '-');
  for (const std::string_view negation : {"no-", "disable-", "enable-"})
    if (text.starts_with(negation) && text.size() > negation.size()) return text.substr(negation.size());
  return text;
}

bool turns(const SwitchSide& side, const std::string& name, bool environment) {
  if (environment) return side.env.contains(name);
  return std::any_of(side.args.begin(), side.args.end(),
                     [&](const std::string& arg) { return arg.starts_with("-") && flag_name(arg) == flag_name(name); });
}

std::string text_of(const Json& j, const char* key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

// The variable or flag that a suspect hangs on.
struct Gate {
  std::string name;
  bool environment = false;
};
std::optional<Gate> gate_of(const Json& suspect) {
  if (!suspect.contains("gate") || !suspect["gate"].is_object()) return std::nullopt;
  const Json& gate = suspect["gate"];
  return Gate{text_of(gate, "name"), text_of(gate, "kind") == "env"};
}

std::string place_of(const Json& suspect) {
  std::string where = text_of(suspect, "file");
  if (const std::string hunk = text_of(suspect, "hunk"); !hunk.empty()) where += ":" + hunk;
  if (const std::string function = text_of(suspect, "function"); !function.empty()) where += " " + function;
  return where;
}

// What a group test makes of weights: half flat, half by rank.
std::vector<double> priors(const Deployment& deployment, const std::vector<std::size_t>& turned) {
  const auto n = static_cast<double>(turned.size());
  std::vector<double> all(turned.size(), 1 / n);
  const std::vector<double> weights =
      deployment.given.ranks == nullptr ? std::vector<double>() : deployment.given.ranks->weights(turned);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) all[i] = 0.5 / n + 0.5 * weights[i] / sum;
  return all;
}

std::string source_of(const RankedSwitches::Suspect& s) {
  return fmt::format("{}{}{} ({:.3f})", s.gate, s.gate.empty() ? "" : ": ", s.where, s.prior);
}

Json suspect_json(const RankedSwitches::Suspect& s) {
  return {{"where", s.where}, {"gate", s.gate.empty() ? Json() : Json(s.gate)}, {"prior", s.prior}};
}

}  // namespace

std::vector<double> RankedSwitches::weights(const std::vector<std::size_t>& suspects) const {
  std::vector<double> list;
  for (const std::size_t s : suspects) list.push_back(s < switches.size() ? switches[s].weight : 0);
  if (std::accumulate(list.begin(), list.end(), 0.0) <= 0) list.clear();
  return list;
}

Result<std::shared_ptr<const RankedSwitches>> rank_switches(std::string text, const std::string& file_name,
                                                            const Deployment& deployment) {
  if (text.size() > kMaxRankBytes) return error("{}: {} bytes, more than {}", file_name, text.size(), kMaxRankBytes);
  const Json j = Json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("suspects") || !j["suspects"].is_array())
    return error("{}: is not what plumb rank --json prints: it has no list of suspects", file_name);
  auto ranked = std::make_shared<RankedSwitches>();
  ranked->switches.resize(deployment.switches.size());
  for (const Json& s : j["suspects"]) {
    if (!s.is_object() || !s.contains("prior") || !s["prior"].is_number())
      return error("{}: a suspect has no prior", file_name);
    const double prior = s["prior"].get<double>();
    if (!(prior >= 0 && prior <= 1)) return error("{}: a suspect's prior {} is not from 0 to 1", file_name, prior);
    const auto gate = gate_of(s);
    RankedSwitches::Suspect suspect{place_of(s), "", prior};
    std::vector<std::size_t> matched;
    if (gate) {
      const bool dashed = gate->environment || gate->name.starts_with("-");
      suspect.gate = fmt::format("{} {}{}", gate->environment ? "env" : "flag", dashed ? "" : "--", gate->name);
      for (std::size_t i = 0; i < deployment.switches.size(); ++i) {
        const SwitchSpec& spec = deployment.switches[i];
        if (turns(spec.off, gate->name, gate->environment) || turns(spec.on, gate->name, gate->environment))
          matched.push_back(i);
      }
    }
    if (matched.empty()) ranked->unmatched.push_back(suspect);
    for (const std::size_t i : matched) {
      ranked->switches[i].weight += prior / static_cast<double>(matched.size());
      ranked->switches[i].suspects.push_back(suspect);
    }
  }
  std::sort(ranked->unmatched.begin(), ranked->unmatched.end(), [](const auto& a, const auto& b) {
    return std::tie(b.prior, a.where, a.gate) < std::tie(a.prior, b.where, b.gate);
  });
  ranked->hash = hash_text(text);
  ranked->text = std::move(text);
  return std::shared_ptr<const RankedSwitches>(std::move(ranked));
}

std::string describe_priors(const Deployment& deployment) {
  if (deployment.given.ranks == nullptr) return {};
  const RankedSwitches& ranked = *deployment.given.ranks;
  const auto turned = difference(as_deployed(deployment), reference_variant(deployment));
  const std::vector<double> all = priors(deployment, turned);
  std::string out = ranked.weights(turned).empty()
                        ? "prior of each switch: flat, no suspect of the ranking hangs on one that is turned\n"
                        : "prior of each switch that is turned, half flat and half by the ranking:\n";
  for (std::size_t i = 0; i < turned.size(); ++i) {
    out += fmt::format("  {:.3f}  {}\n", all[i], deployment.switches[turned[i]].name);
    for (const auto& s : ranked.switches[turned[i]].suspects) out += fmt::format("           {}\n", source_of(s));
  }
  if (ranked.unmatched.empty()) return out;
  out += fmt::format("suspects that no switch turns: {}\n", ranked.unmatched.size());
  for (std::size_t i = 0; i < std::min(kShownUnmatched, ranked.unmatched.size()); ++i)
    out += fmt::format("  {}{}\n", source_of(ranked.unmatched[i]),
                       ranked.unmatched[i].gate.empty() ? ": no gate; a switch with apply = \"patch\" reverts it" : "");
  return out;
}

Json priors_json(const Deployment& deployment) {
  if (deployment.given.ranks == nullptr) return nullptr;
  const auto turned = difference(as_deployed(deployment), reference_variant(deployment));
  const std::vector<double> all = priors(deployment, turned);
  Json list = Json::array();
  for (std::size_t i = 0; i < turned.size(); ++i) {
    Json from = Json::array();
    for (const auto& s : deployment.given.ranks->switches[turned[i]].suspects) from.push_back(suspect_json(s));
    list.push_back({{"switch", deployment.switches[turned[i]].name}, {"prior", all[i]}, {"from", from}});
  }
  return list;
}

Json unmatched_json(const Deployment& deployment) {
  if (deployment.given.ranks == nullptr) return nullptr;
  Json list = Json::array();
  for (const auto& s : deployment.given.ranks->unmatched) list.push_back(suspect_json(s));
  return list;
}

}  // namespace plumb::investigator

#include "investigator/rank/rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

namespace plumb::investigator::rank {
namespace {

using inventory::Class;
using inventory::Finding;
using inventory::Role;

constexpr std::array<std::string_view, 10> kSymptoms{"short", "turns",  "needle", "boundary", "hit",
                                                     "crowd", "decode", "repeat", "pd",       "repetition"};

// What lowers or raises a class's weight. All are factors of the same product.
constexpr double kPlumbing = 0.05;   // logs, metrics, arguments
constexpr double kWidening = 0.15;   // more bits than before
constexpr double kConverter = 0.03;  // runs offline
constexpr double kNewCode = 0.5;     // a statement without a predecessor
constexpr double kWholeUnit =
    0.4;  // a function or file that is new or gone: nothing in it is a change of something that worked
constexpr double kGateOff = 0.04;  // does not run with nothing set
constexpr double kGateUnknown = 0.7;
constexpr double kOnceOnly = 0.85;   // not in the layers
constexpr double kFineFormat = 0.7;  // rounding finer than bf16
constexpr double kExplains = 2.0, kDoesNotExplain = 0.4;
constexpr double kOthersOfHunk = 0.1;  // what the other findings of a hunk add
constexpr double kMostOthers = 0.5;
constexpr std::array kTiers{0.85, 0.4, 0.1};  // least weight of tiers 1, 2, 3

bool lists(std::string_view probes, std::string_view name) {
  for (std::size_t at = probes.find(name); at != std::string_view::npos; at = probes.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || probes[at - 1] == ' ') && (end == probes.size() || probes[end] == ',')) return true;
  }
  return false;
}

std::string probes_of(const Finding& f) {
  std::string probes(f.area->probes);
  if (f.phase == "decode" && !lists(probes, "decode")) probes += ", decode";
  if ((f.cls == Class::state_transfer || f.cls == Class::cache_key) && !lists(probes, "hit")) probes += ", hit";
  if (f.cls == Class::synchronisation && !lists(probes, "repeat")) probes += ", repeat";
  if (f.cls == Class::bound && !lists(probes, "boundary")) probes += ", boundary";
  return probes;
}

double weight_of(const Finding& f, const RankOptions& options) {
  double w = inventory::entry(f.cls).weight * f.area->weight;
  if (f.plumbing) w *= kPlumbing;
  if (f.widening) w *= kWidening;
  if (f.role == Role::converter) w *= kConverter;
  if (f.whole && !f.deleted) w *= kNewCode;
  if (f.whole_unit) w *= kWholeUnit;
  if (f.gate) w *= f.gate->runs() ? *f.gate->runs() ? 1.0 : kGateOff : kGateUnknown;
  if (!f.per_layer) w *= kOnceOnly;
  if (f.rounding && f.rounding->unit_roundoff < 0x1p-9) w *= kFineFormat;
  if (!options.symptoms.empty()) {
    const std::string probes = probes_of(f);
    const bool explains = std::any_of(options.symptoms.begin(), options.symptoms.end(),
                                      [&](const std::string& s) { return lists(probes, s); });
    w *= explains ? kExplains : kDoesNotExplain;
  }
  return w;
}

double sites(const Finding& f, int layers) {
  const double reached = f.area->hash_layers_only ? std::min(layers, 3) : layers;
  return std::max(1.0, f.per_layer ? f.area->sites_per_layer * reached + f.area->sites_extra : 1.0);
}

std::string percent(double x) { return fmt::format("{:.2g} %", 100 * x); }

// The errors in the order an engineer would write them: the study's estimate, its assumption, the refined one, the
// measured.
std::string rounding_reason(const Finding& f, const Suspect& s, int layers) {
  const inventory::Rounding& r = *f.rounding;
  const double n = sites(f, layers);
  const double rms = std::sqrt(static_cast<double>(r.operands)) * kRmsOfUnitRoundoff * r.unit_roundoff;
  std::string out = fmt::format(
      " Worst case of one application {} ({} rounded operand{} of unit roundoff {:.3g}), {} over {} layers if each "
      "layer has one and "
      "the errors {}.",
      percent(*s.predicted_rel_error), r.operands, r.operands == 1 ? "" : "s", r.unit_roundoff,
      percent(*s.predicted_rel_error_depth), layers, r.biased ? "fall on one side" : "are independent");
  out += fmt::format(
      " Refined: rms {} an application (rounding to nearest; independent of the length of the sum unless it cancels), "
      "{} over {:.0f} site{}.",
      percent(rms), percent(rms * (r.biased ? n : std::sqrt(n))), n, n == 1 ? "" : "s");
  if (f.cls == Class::accumulation_type)
    out +=
        " The sum itself is rounded at every step, so its error also grows with the square root of the number of "
        "terms.";
  if (r.operands == 2)
    out += " If one operand is exact in the new format already, only the other is rounded and the rms falls by 1.4.";
  if (f.area->measured > 0)
    out += fmt::format(" Measured elsewhere: {} ({}).", percent(f.area->measured), f.area->measured_note);
  return out;
}

std::string reason_of(const Finding& f, const Suspect& s, std::size_t others, int layers) {
  std::string out = fmt::format("{}{}: {}; {}.", f.area->name, f.function.empty() ? "" : " (" + f.function + ")",
                                f.what, inventory::entry(f.cls).why);
  if (f.rounding) out += rounding_reason(f, s, layers);
  if (f.cls == Class::scale_added || f.cls == Class::scale_removed)
    out +=
        " A wrong factor f makes a relative error of |f - 1| in the same direction everywhere (routed scaling 1.5: 50 "
        "% twice, 33 % when missing); cosine does not see it.";
  if (f.gate) {
    const auto runs = f.gate->runs();
    out += fmt::format(" Behind {}{}: {}.", f.gate->name,
                       f.gate->set_by_launch ? ", which a launch file of the range sets" : "",
                       runs ? *runs ? "runs as launched" : "does not run with nothing set"
                            : "the range does not say whether it is on");
  }
  if (f.role == Role::converter)
    out += " An offline converter: it cannot act unless the checkpoint was converted with it.";
  if (f.widening) out += " It adds bits; it can still move the result away from the reference.";
  if (f.plumbing) out += " It looks like logging, metrics or arguments.";
  out += fmt::format(" Explains failures of: {}; not of the other probes alone.", s.probe);
  if (others > 0) out += fmt::format(" {} more change{} in this hunk.", others, others == 1 ? "" : "s");
  return out;
}

std::vector<std::string> questions_of(const Finding& f) {
  std::vector<std::string> q;
  if (f.gate && (!f.gate->runs() || !*f.gate->runs()))
    q.push_back(fmt::format("Is {} set where it fails? `plumb active --pid PID`, or /proc/PID/environ.", f.gate->name));
  if (f.cls == Class::scale_added || f.cls == Class::scale_removed || f.cls == Class::scale_moved)
    q.emplace_back(
        "How often does each path meet the factor? Norm ratio of the op's output to the reference on 8 tokens.");
  if (f.rounding)
    q.emplace_back(
        "Which operands are exact in the new format already? Compare this op with its f32 form on captured inputs, one "
        "layer.");
  if (f.cls == Class::guard_removed || f.cls == Class::guard_moved)
    q.emplace_back("Does a request meet the refused case? Put the check back as a counter.");
  if (f.cls == Class::argument_dropped)
    q.emplace_back("What is the callee's default, and is it what was passed? Read its declaration.");
  if (f.cls == Class::two_dialects)
    q.emplace_back("What is the variable's value in each process? It must mean the same in every dialect.");
  if (f.cls == Class::state_transfer || f.cls == Class::cache_key)
    q.emplace_back("Is the cold prompt right and the hit wrong? `plumb probe URL --suite hit`.");
  if (q.empty())
    q.push_back(fmt::format("Does reverting this hunk alone cure it? `plumb probe URL --suite {}` before and after.",
                            f.area->probes.substr(0, f.area->probes.find(','))));
  return q;
}

}  // namespace

bool is_symptom(std::string_view name) {
  return std::find(kSymptoms.begin(), kSymptoms.end(), name) != kSymptoms.end();
}

Ranking rank(const inventory::Inventory& inventory, const RankOptions& options) {
  struct Group {
    std::vector<const Finding*> findings;
    std::size_t order = 0;
  };
  Ranking out;
  out.layers = options.layers;
  std::map<std::pair<std::string_view, std::string_view>, Group> groups, tests;
  for (const Finding& f : inventory.findings) {
    Group& g = (f.role == Role::source || f.role == Role::converter ? groups : tests)[{f.file, f.hunk}];
    g.findings.push_back(&f);
  }
  out.set_aside = static_cast<int>(tests.size());
  double total = 0;
  std::vector<double> weights;
  for (auto& [key, group] : groups) {
    double best = -1, sum = 0;
    const Finding* chief = nullptr;
    for (const Finding* f : group.findings) {
      const double w = weight_of(*f, options);
      sum += w;
      if (w > best) best = w, chief = f;
    }
    Finding with_bias = *chief;
    if (with_bias.rounding)
      for (const Finding* f : group.findings)
        if (f->rounding && f->rounding->biased) with_bias.rounding->biased = true;
    chief = &with_bias;
    const double weight = best + std::min(kMostOthers * best, kOthersOfHunk * (sum - best));
    Suspect s;
    s.file = chief->file, s.hunk = chief->hunk, s.function = chief->function, s.cls = chief->cls,
    s.phase = chief->phase, s.gate = chief->gate;
    s.prior = weight;
    s.tier = weight >= kTiers[0] ? 1 : weight >= kTiers[1] ? 2 : weight >= kTiers[2] ? 3 : 4;
    s.probe = probes_of(*chief);
    if (chief->rounding) {
      const double one = chief->rounding->operands * chief->rounding->unit_roundoff;
      s.predicted_rel_error = one;
      s.predicted_rel_error_depth =
          one * (chief->rounding->biased ? options.layers : std::sqrt(static_cast<double>(options.layers)));
    }
    s.reason = reason_of(*chief, s, group.findings.size() - 1, options.layers);
    s.open_questions = questions_of(*chief);
    total += weight;
    out.suspects.push_back(std::move(s));
  }
  for (Suspect& s : out.suspects) s.prior /= total;
  std::sort(out.suspects.begin(), out.suspects.end(), [](const Suspect& a, const Suspect& b) {
    return a.prior != b.prior ? a.prior > b.prior : std::tie(a.file, a.hunk) < std::tie(b.file, b.hunk);
  });
  return out;
}

nlohmann::ordered_json to_json(const inventory::Inventory& inventory, const Ranking& ranking) {
  using nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& x) { return x ? ordered_json(*x) : ordered_json(nullptr); };
  ordered_json suspects = ordered_json::array();
  for (const Suspect& s : ranking.suspects)
    suspects.push_back({{"file", s.file},
                        {"hunk", s.hunk},
                        {"class", inventory::entry(s.cls).word},
                        {"tier", s.tier},
                        {"prior", s.prior},
                        {"phase", s.phase},
                        {"predicted_rel_error", number(s.predicted_rel_error)},
                        {"predicted_rel_error_depth", number(s.predicted_rel_error_depth)},
                        {"reason", s.reason},
                        {"probe", s.probe},
                        {"open_questions", s.open_questions},
                        {"function", s.function},
                        {"gate", inventory::gate_json(s.gate)}});
  return {{"from", inventory.from},         {"to", inventory.to},       {"layers", ranking.layers},
          {"set_aside", ranking.set_aside}, {"notes", inventory.notes}, {"suspects", suspects}};
}

std::string to_text(const Ranking& ranking) {
  std::string out;
  int last = 0;
  std::size_t rest = 0;
  for (const Suspect& s : ranking.suspects) {
    if (s.tier == 4) {
      ++rest;
      continue;
    }
    if (s.tier != last) out += fmt::format("Tier {}\n", last = s.tier);
    out += fmt::format("  {:4.1f} %  {}  {}  {}\n          {}\n", 100 * s.prior, s.file, s.hunk,
                       inventory::entry(s.cls).word, s.reason);
    for (const std::string& q : s.open_questions) out += "          ? " + q + "\n";
  }
  return out + fmt::format("{} hunks of tier 4, {} hunks of tests set aside\n", rest, ranking.set_aside);
}

}  // namespace plumb::investigator::rank

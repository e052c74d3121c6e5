#include "faults/check/check.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "faults/check/children.h"
#include "faults/check/planted.h"
#include "faults/recorded.h"

namespace plumb::faults {
namespace {

constexpr std::uint64_t kDoseSeed = 1;
constexpr int kFurtherLaunches = 2;
constexpr double kSmallestD = 1e-9;  // below that a relative difference says nothing
constexpr double kSameD = 0.1;

std::string sightings_text(const Subject& subject, const Variant& variant) {
  return to_json(measure(subject, variant)).dump();
}

std::vector<const Plant*> chosen(const CheckOptions& options) {
  std::vector<const Plant*> list;
  for (const Plant& plant : plants()) {
    const bool kind = options.kinds.empty() || std::ranges::find(options.kinds, plant.kind) != options.kinds.end();
    if (kind && (options.form.empty() || options.form == plant.form)) list.push_back(&plant);
  }
  return list;
}

// Everything to run: the reference first, then an honest side for each host, then each plant and its further launches.
struct Jobs {
  std::vector<Job> jobs;
  std::vector<std::string> names;
  std::map<std::string, std::size_t> honest;  // by ground_name
  std::vector<std::size_t> first;             // of each plant; its further launches follow
};

Jobs jobs_of(const Subject& subject, const std::vector<const Plant*>& list) {
  Jobs jobs;
  const auto add = [&](std::string name, Job job) {
    jobs.names.push_back(std::move(name));
    jobs.jobs.push_back(std::move(job));
    return jobs.jobs.size() - 1;
  };
  add("reference", [&subject] { return sightings_text(subject, {.probes = Settings(), .texts = Settings()}); });
  for (const Plant* plant : list)
    if (const std::string name = ground_name(*plant); !jobs.honest.contains(name))
      jobs.honest[name] =
          add("honest " + name, [&subject, plant] { return sightings_text(subject, honest_variant(*plant)); });
  for (const Plant* plant : list) {
    const std::string name = fmt::format("{} ({})", plant->kind, plant->form);
    jobs.first.push_back(
        add(name, [&subject, plant] { return sightings_text(subject, planted_variant(*plant, kDoseSeed, 1)); }));
    for (int launch = 2; launch < 2 + kFurtherLaunches; ++launch)
      add(fmt::format("{}, launch {}", name, launch), [&subject, plant, launch] {
        return nlohmann::json(
                   measure_repeats(subject, planted_variant(*plant, kDoseSeed, static_cast<std::uint64_t>(launch))))
            .dump();
      });
  }
  return jobs;
}

// What the host's on side may move; the reference itself may move nothing.
double shift_of(const Plant& plant) {
  for (const Switch& entry : kSwitches)
    if (plant.side == PlantSide::on && entry.name == plant.host) return entry.shift;
  CHECK(plant.side != PlantSide::on);
  return 0;
}

// An honest side that fails its own comparisons, or answers wrong where the reference does not, is no ground.
Result<void> sound(std::string_view name, const Ground& ground) {
  const Outcome outcome = outcome_of(ground.honest, {}, ground);
  const auto& s = outcome.signature;
  for (std::size_t i = 0; i < kProbeCount; ++i)
    if (kComparisons.find(kProbeLetters[i]) != std::string_view::npos && s[i].failed > 0)
      return error("honest {}: {}: replies differ without a fault", name, signature_text(s));
  if (outcome.word == kDamage) return error("honest {}: {}: damage without a fault", name, signature_text(s));
  if (ground.honest.hit_tokens == 0) return error("honest {}: no prompt was found in the cache", name);
  return {};
}

bool same_d(double a, double b) { return std::max(a, b) < kSmallestD || std::abs(a - b) <= kSameD * std::max(a, b); }

std::string row_text(const Plant& plant, const Recorded& r) {
  return fmt::format(
      "    Recorded{{\"{}\", \"{}\", \"{}\",\n             \"{}\", {:.3g}, {:.3g}, {:.3g}, {}, {}, {}, {:.3g}, "
      "\"{}\"}},\n",
      plant.kind, plant.form, r.site, r.signature, r.d_cold, r.d_hit, r.d_decode, r.flips, r.passages, r.lost_answers,
      r.lost_nats, r.word);
}

}  // namespace

Result<std::vector<Checked>> check_plants(const CheckOptions& options) {
  const auto list = chosen(options);
  if (list.empty()) return error("no plant of that kind and form; plumb-faulty faults lists them");
  const auto subject = load_subject(options.model, options.questions);
  if (!subject) return tl::unexpected(subject.error());
  const Jobs jobs = jobs_of(*subject, list);
  const auto texts = run_in_children(jobs.jobs, options.processes, options.timeout_s, [&](std::size_t job) {
    std::fprintf(stderr, "measured %s\n", jobs.names[job].c_str());
  });
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (!texts[i]) return error("{}: {}", jobs.names[i], texts[i].error().message);
  const auto sightings = [&](std::size_t i) { return sightings_from_json(nlohmann::json::parse(*texts[i])); };

  const Sightings reference = sightings(0);
  std::map<std::string, Ground> grounds;
  for (const Plant* plant : list) {
    const std::string name = ground_name(*plant);
    if (grounds.contains(name)) continue;
    const Ground& ground = grounds[name] = {reference, sightings(jobs.honest.at(name)), shift_of(*plant)};
    if (auto ok = sound(name, ground); !ok) return tl::unexpected(ok.error());
  }
  std::vector<Checked> checked;
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::vector<std::vector<std::uint64_t>> further;
    for (std::size_t launch = 1; launch <= kFurtherLaunches; ++launch)
      further.push_back(nlohmann::json::parse(*texts[jobs.first[i] + launch]).get<std::vector<std::uint64_t>>());
    const Outcome outcome = outcome_of(sightings(jobs.first[i]), further, grounds[ground_name(*list[i])]);
    checked.push_back({list[i], outcome, difference(*list[i], outcome)});
  }
  return checked;
}

std::string difference(const Plant& plant, const Outcome& outcome) {
  std::string text;
  const auto add = [&](std::string_view what, const auto& is, const auto& was) {
    text += fmt::format("{}{} is '{}', stated '{}'", text.empty() ? "" : "; ", what, is, was);
  };
  if (plant.site.find(": ") != std::string_view::npos && outcome.site != plant.site)
    add("site", outcome.site, plant.site);
  const Recorded* r = find_recorded(plant.kind, plant.form);
  if (r == nullptr) return text + (text.empty() ? "" : "; ") + "no outcome is recorded";
  if (outcome.site != r->site) add("recorded site", outcome.site, r->site);
  if (signature_text(outcome.signature) != r->signature)
    add("signature", signature_text(outcome.signature), r->signature);
  if (outcome.word != r->word) add("word", outcome.word, r->word);
  if (outcome.flips != r->flips) add("flips", outcome.flips, r->flips);
  if (!same_d(outcome.d_cold, r->d_cold)) add("D", outcome.d_cold, r->d_cold);
  if (!same_d(outcome.d_hit, r->d_hit)) add("D of hits", outcome.d_hit, r->d_hit);
  if (!same_d(outcome.d_decode, r->d_decode)) add("D of decode", outcome.d_decode, r->d_decode);
  return text;
}

std::string recorded_rows(std::span<const Checked> measured) {
  std::string text;
  for (const Plant& plant : plants()) {
    const auto now = std::ranges::find_if(measured, [&](const Checked& c) { return c.plant == &plant; });
    if (now == measured.end()) {
      if (const Recorded* r = find_recorded(plant.kind, plant.form)) text += row_text(plant, *r);
      continue;
    }
    const Outcome& o = now->outcome;
    const std::string signature = signature_text(o.signature);
    text += row_text(plant, {.kind = plant.kind,
                             .form = plant.form,
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
  }
  return text;
}

}  // namespace plumb::faults

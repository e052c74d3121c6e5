#include "faults/check/docs.h"

#include <cmath>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "faults/check/outcome.h"
#include "faults/plants.h"
#include "faults/recorded.h"

namespace plumb::faults {
namespace {

constexpr std::string_view kHead = R"(# Faults that can be planted

Written by `plumb-faulty faults --docs docs/faults.md` from the table of plants (`src/faults/plants.cpp`) and what was
measured of each (`src/faults/recorded.inc`); `plumb-faulty faults --check` measures again and compares. {} plants of {} kinds
on {} switches. How large each effect is and how many trials show it: `docs/sensitivity.md`, written by `plumb-faulty faults
--sensitivity docs/sensitivity.md`.

A plant is a wrong on side of a switch that exists: the mechanism of a fault that was seen in the field, at its real place. Off
stays equal to the bit, nothing a client can read names it. (Two exist for the investigator's tests alone: a wrong off side, and a
wrong step under no switch.) It is measured on the shipped phantom in a fresh process, one
thread, host switch on and all others at their defaults:

- **S B N T**: wrong answers to *short*, *boundary*, *needle* and *turns* questions, of those asked.
- **E**: the same for *exacting* tasks (`phantom/TASKS.md`: text to the letter, near ties, tables known by heart, updates), each
  conversation turn by turn on a busy server. Some of these the phantom answers wrong without a fault, too.
- **H C D R**: replies that differ, in any bit of any log-probability, from the one they must equal: a *hit* and the same prompt
  cold; a request in a *crowd* and alone; *decoded* tokens and the same ones scored in one pass; *repeats* in one launch and
  in two more.
- **prior**: what the catalogue of fault kinds expects of the same probes (x fails, . passes, ~ depends).
- **site**: where it is first seen; it was stated before it was measured. `state …` is a kind of state before a pass; a word
  alone is a stage that has no port.
- **D**: ½ · mean of (Δ log-probability)² against all switches off, the host alone on: texts scored cold / as hits / decoded
  token by token. **flips**: passages of unfamiliar text in which a most likely token changed.
- **lost**: answers that are wrong where the reference is right; **nats**: by how much less likely the right answer became,
  mean over all.
- **word**: *damage* (wrong or less likely answers, e-value 100), *over budget* (no damage shown, D above the switch's shift),
  *difference* (some bit), *nothing* (the phantom cannot see it).

| kind · form | switch | site | prior | S | B | N | T | H | C | D | R | E | D cold / hit / decode | flips | lost | nats | word |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
)";

std::string count_text(const Count& c) { return c.failed == 0 ? "·" : fmt::format("{}/{}", c.failed, c.of); }

// Without the sign of a zero.
double rounded(double nats) { return std::abs(nats) < 0.005 ? 0 : nats; }

std::string d_text(double d) { return d == 0 ? "0" : fmt::format("{:.1e}", d); }

// Texts are asked as hits where the host is the prefix cache: only it is on.
std::string hit_text(const Plant& plant, const Recorded& r) {
  return plant.host == "prefix_cache" ? d_text(r.d_hit) : "–";
}

std::string host_text(const Plant& plant) {
  if (plant.side == PlantSide::step) return "no switch";
  return plant.side == PlantSide::off ? fmt::format("{} (off)", plant.host) : std::string(plant.host);
}

std::string row(const Plant& plant, const Recorded& r) {
  std::string text = fmt::format("| {} · {} | {} | {} | `{}` |", plant.kind, plant.form, host_text(plant),
                                 r.site.empty() ? plant.site : r.site, plant.prior);
  if (const auto signature = parse_signature(r.signature))
    for (const Count& count : *signature) text += fmt::format(" {} |", count_text(count));
  return text + fmt::format(" {} / {} / {} | {}/{} | {} | {:.2f} | {} |\n", d_text(r.d_cold), hit_text(plant, r),
                            d_text(r.d_decode), r.flips, r.passages, r.lost_answers, rounded(r.lost_nats), r.word);
}

}  // namespace

std::string faults_document() {
  std::set<std::string_view> kinds, hosts;
  for (const Plant& plant : plants()) {
    kinds.insert(plant.kind);
    if (plant.side == PlantSide::on) hosts.insert(plant.host);
  }
  std::string text = fmt::format(fmt::runtime(kHead), plants().size(), kinds.size(), hosts.size());
  std::vector<std::string> unseen;
  for (const Plant& plant : plants()) {
    const Recorded* r = find_recorded(plant.kind, plant.form);
    if (r == nullptr) continue;
    text += row(plant, *r);
    if (r->lost_answers == 0) unseen.push_back(fmt::format("- **{}** · {}: {}\n", plant.kind, plant.form, r->word));
  }
  text +=
      "\n## What exact answers do not show\n\nNot one of the phantom's answers is lost to these: a gate of right and "
      "wrong "
      "answers alone would pass them. Beside each stands the word that the other measures give; *nothing* means that "
      "the "
      "phantom cannot see it at all.\n\n";
  for (const std::string& line : unseen) text += line;
  text += "\n## Mechanisms\n\n";
  for (const Plant& plant : plants()) {
    text += fmt::format("- **{}** · {} ({}): {}.", plant.kind, plant.form, host_text(plant), plant.what);
    if (!plant.note.empty()) text += fmt::format(" {}", plant.note);
    text += "\n";
  }
  return text;
}

}  // namespace plumb::faults

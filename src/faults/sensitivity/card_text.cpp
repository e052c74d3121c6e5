#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "faults/sensitivity/card.h"
#include "faults/sensitivity/trials_needed.h"

namespace plumb::faults {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHead = R"(# How small a fault the phantom shows

Written by `plumb-faulty faults --sensitivity docs/sensitivity.md` on the shipped phantom (model hash {hash}); the same numbers are
in `sensitivity.json`. `docs/faults.md` says what each plant is.

## How it is measured

A **trial** is one conversation of a task that feels quiet faults (`phantom/write_questions.py`): a text of 64 to 200 tokens to the
letter, facts one character apart, updates, near ties in a count, tables known by heart, long codes, turns with tools. Its last
questions are asked turn by turn through the chat form, and the last one once more. Eight conversations are asked at a time by
a server that runs five and has pages for six, so that there are hits, evictions, and rows that change owners. The server runs with
its defaults and the host switch on, on one thread. Every trial is done twice, with the fault and without; each eight are a launch with
a draw of their own. Without a fault the same eight give the same bits, which is checked.

| measure | effect | trials needed so that both errors are at most 1 % |
|---|---|---|
| exact | trials that are right without the fault alone (lost) and with it alone (won) | the smallest n for which the exact one-sided sign test at 1 % calls with 99 %: of d ~ Bin(n, lost + won) differing trials l ~ Bin(d, lost/(lost + won)) are lost, and it calls when P(Bin(d, ½) ≥ l) ≤ 1 %; above 1,000 its normal approximation |
| no answer | the same for trials with a reply that is empty, or not ended 16 tokens behind the answer's length | the same |
| nats | by how much less likely the right answers became, mean ± sd over trials | ⌈((2.326 + 2.326)·sd/mean)²⌉, at least 2 |
| D | ½·mean of (Δ log-probability)² over the answers' tokens | trials without a fault have 0, so one trial above 1e-12 shows it: ⌈ln 0.01/ln(1 - share)⌉ for the share of trials above |
| KL | mean over the same tokens of Σ p·ln(p/q) over the vocabulary, q with the fault | the same |
| decode | largest difference between a reply's log-probabilities, decoded and scored in one pass, of the first sixteen trials (eight) | the same, for the share of trials in which any bit differs |

Tokens are compared up to and with the first wrong one. Where no trial was lost or won, `>` stands before the trials that the largest
share would need that this is compatible with at 95 %, 1 - 0.05^(1/n).

**Significant** (in bold): the e-value of lost against won, 2^(l+w+1) · ∫½..1 p^l (1-p)^w dp, reached 100 after some trial. Under "the fault
changes nothing" that happens in at most 1 % of the cells, whenever one stops looking. A cell is stopped when it is significant and
has its least number of trials ({least_short}; in parentheses what holds beyond 1,024 tokens: {least_long}); when no bit of any reply has differed in so many; when no answer has moved by 0.1 nats
in {hopeless} ({hopeless_long}); when at most one more was lost than won in twice as many; or when all its conversations were asked.

)";

// A decoy differs from the honest side in nothing; its site says so.
bool is_decoy(const Plant& plant) { return plant.site == "none"; }

std::string name_of(const Plant& plant) { return fmt::format("{} · {}", plant.kind, plant.form); }

std::string needed_text(std::int64_t trials) { return trials == kNeverEnough ? "–" : fmt::format("{}", trials); }

std::int64_t effect_trials(const Effect& effect, std::int64_t trials) {
  const auto n = static_cast<double>(trials);
  return sign_test_trials(effect.worse / n, effect.better / n);
}

std::string effect_text(const Effect& effect, std::int64_t trials) {
  if (effect.worse + effect.better == 0)
    return fmt::format("· >{}", needed_text(sign_test_trials(zero_bound(trials), 0)));
  const std::string counts = fmt::format("{}/{}", effect.worse, effect.better);
  return fmt::format("{} {}", effect.seen_after > 0 ? "**" + counts + "**" : counts,
                     needed_text(effect_trials(effect, trials)));
}

std::string share_text(double size, double share) {
  return size == 0 ? "0 –" : fmt::format("{:.0e} {}", size, needed_text(seen_trials(share)));
}

std::string cell_row(const PlantCells& row, const CellSummary& s) {
  if (s.trials == 0) return fmt::format("| {} | 0 | | | | | | |\n", name_of(*row.plant));
  return fmt::format("| {} | {} | {} | {} | {:.2g} ± {:.2g} {} | {} | {} | {} |\n", name_of(*row.plant), s.trials,
                     effect_text(s.exact, s.trials), effect_text(s.no_answer, s.trials), s.nats_mean, s.nats_sd,
                     needed_text(mean_test_trials(s.nats_mean, s.nats_sd)), share_text(s.d_mean, s.d_share),
                     share_text(s.kl_mean, s.kl_share), share_text(s.gap_max, s.gap_share));
}

bool changes_answers(const CellSummary& s) { return s.exact.seen_after > 0 || s.no_answer.seen_after > 0; }
bool seen_by_d(const CellSummary& s) { return s.d_after > 0 && s.d_after <= kTrialsForD; }

using Test = bool (*)(const CellSummary&);
bool anywhere(const PlantCells& row, Test test) { return std::ranges::any_of(row.cells, test); }

std::string why(const PlantCells& row) {
  std::int64_t trials = 0, differing = 0;
  double d = 0, nats = 0;
  for (const CellSummary& s : row.cells) {
    trials += s.trials;
    differing += s.differing;
    d = std::max(d, s.d_mean);
    nats = std::max(nats, std::abs(s.nats_mean));
  }
  std::string text =
      differing == 0 ? fmt::format("no bit of any reply differs in {} trials", trials)
                     : fmt::format("replies differ in {} of {} trials, D at most {:.0e}, {:.2g} nats a trial at most",
                                   differing, trials, d, nats);
  if (!row.plant->note.empty()) text += fmt::format(". {}", row.plant->note);
  return text;
}

struct Kinds {
  std::vector<std::string_view> all, shown;  // decoys aside; in the table's order
};

Kinds kinds_shown(const Card& card, Test test) {
  Kinds kinds;
  for (const PlantCells& row : card.plants) {
    if (is_decoy(*row.plant)) continue;
    const std::string_view kind = row.plant->kind;
    if (std::ranges::find(kinds.all, kind) == kinds.all.end()) kinds.all.push_back(kind);
    if (anywhere(row, test) && std::ranges::find(kinds.shown, kind) == kinds.shown.end()) kinds.shown.push_back(kind);
  }
  return kinds;
}

std::string percent(std::size_t part, std::size_t whole) {
  return fmt::format("{} of {} ({:.0f} %)", part, whole,
                     whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// The fewest trials that a measure needs at any length.
std::int64_t fewest(const PlantCells& row, const std::function<std::int64_t(const CellSummary&)>& needed) {
  std::int64_t best = kNeverEnough;
  for (const CellSummary& s : row.cells) {
    if (s.trials == 0) continue;
    const std::int64_t n = needed(s);
    if (n != kNeverEnough && (best == kNeverEnough || n < best)) best = n;
  }
  return best;
}

std::string measures_table(const Card& card) {
  struct Measure {
    std::string_view name;
    std::function<std::int64_t(const CellSummary&)> needed;
  };
  const std::vector<Measure> measures{
      {"exact", [](const CellSummary& s) { return effect_trials(s.exact, s.trials); }},
      {"no answer", [](const CellSummary& s) { return effect_trials(s.no_answer, s.trials); }},
      {"nats", [](const CellSummary& s) { return mean_test_trials(s.nats_mean, s.nats_sd); }},
      {"D", [](const CellSummary& s) { return seen_trials(s.d_share); }},
      {"KL", [](const CellSummary& s) { return seen_trials(s.kl_share); }},
      {"decode", [](const CellSummary& s) { return seen_trials(s.gap_share); }}};
  constexpr std::array<std::int64_t, 4> kBounds{10, 50, 300, kMostTrials};
  std::string text =
      "Plants that a measure finds with so many trials at its best length, by the estimates below (decoys aside):\n\n"
      "| measure | 10 | 50 | 300 | any number |\n|---|---|---|---|---|\n";
  for (const Measure& measure : measures) {
    text += fmt::format("| {} |", measure.name);
    for (const std::int64_t bound : kBounds)
      text += fmt::format(" {} |", std::ranges::count_if(card.plants, [&](const PlantCells& row) {
                            const std::int64_t n = fewest(row, measure.needed);
                            return !is_decoy(*row.plant) && n != kNeverEnough && n <= bound;
                          }));
    text += "\n";
  }
  return text;
}

std::string summary_text(const Card& card) {
  std::int64_t most = 0;
  for (const PlantCells& row : card.plants)
    for (const CellSummary& s : row.cells) most = std::max(most, s.trials);
  const Kinds answers = kinds_shown(card, &changes_answers), by_d = kinds_shown(card, &seen_by_d);
  std::size_t plants = 0, plants_changed = 0, plants_by_d = 0;
  std::string no_change, no_d, decoys;
  for (const PlantCells& row : card.plants) {
    if (is_decoy(*row.plant)) {
      decoys += fmt::format("- **{}**: {}\n", name_of(*row.plant), why(row));
      continue;
    }
    ++plants;
    const bool changed = anywhere(row, &changes_answers), seen = anywhere(row, &seen_by_d);
    plants_changed += changed;
    plants_by_d += seen;
    const bool kind_changed = std::ranges::find(answers.shown, row.plant->kind) != answers.shown.end();
    if (!changed) no_change += fmt::format("- **{}**{}: {}\n", name_of(*row.plant), kind_changed ? "" : " †", why(row));
    if (!seen) no_d += fmt::format("- **{}**: {}\n", name_of(*row.plant), why(row));
  }
  std::string text = fmt::format(
      "## Summary\n\n- **{}** kinds of fault, decoys aside, change exact answers or give no answer significantly at "
      "one "
      "length, in at most {} trials there; of plants {}.\n- **{}** kinds are seen by D within {} trials at one length; "
      "of "
      "plants {}.\n\n",
      percent(answers.shown.size(), answers.all.size()), most, percent(plants_changed, plants),
      percent(by_d.shown.size(), by_d.all.size()), kTrialsForD, percent(plants_by_d, plants));
  if (!card.complete)
    text += "Not every cell has the trials it needs: the same command goes on where it was stopped.\n\n";
  text += measures_table(card);
  text += "\nAnswers do not change significantly (†: with no form of the kind):\n\n" + no_change;
  if (!no_d.empty()) text += "\nNot seen by D:\n\n" + no_d;
  if (!decoys.empty()) text += "\nDecoys:\n\n" + decoys;
  return text;
}

Json effect_json(const Effect& effect, std::int64_t trials) {
  return {{"lost", effect.worse},
          {"won", effect.better},
          {"significant_after", effect.seen_after},
          {"trials_needed", trials == 0 ? kNeverEnough : effect_trials(effect, trials)}};
}

Json cell_json(const CellSummary& s) {
  return {
      {"tokens", s.tokens},
      {"trials", s.trials},
      {"differing", s.differing},
      {"exact", effect_json(s.exact, s.trials)},
      {"no_answer", effect_json(s.no_answer, s.trials)},
      {"nats", {{"mean", s.nats_mean}, {"sd", s.nats_sd}, {"trials_needed", mean_test_trials(s.nats_mean, s.nats_sd)}}},
      {"d",
       {{"mean", s.d_mean}, {"share", s.d_share}, {"first", s.d_after}, {"trials_needed", seen_trials(s.d_share)}}},
      {"kl", {{"mean", s.kl_mean}, {"share", s.kl_share}, {"trials_needed", seen_trials(s.kl_share)}}},
      {"decode",
       {{"trials", s.scored},
        {"max", s.gap_max},
        {"share", s.gap_share},
        {"trials_needed", seen_trials(s.gap_share)}}}};
}

}  // namespace

std::string card_markdown(const Card& card) {
  std::string text = fmt::format(fmt::runtime(kHead), fmt::arg("hash", card.model_hash),
                                 fmt::arg("least_short", kLeastShort), fmt::arg("least_long", kLeastLong),
                                 fmt::arg("hopeless", kHopeless), fmt::arg("hopeless_long", kHopelessLong));
  text += summary_text(card);
  for (std::size_t i = 0; i < card.lengths.size(); ++i) {
    text += fmt::format(
        "\n## {} tokens\n\nEach effect, then the trials that it needs.\n\n"
        "| kind · form | trials | exact lost/won | no answer | nats | D | KL | decode "
        "|\n|---|---|---|---|---|---|---|---|\n",
        card.lengths[i]);
    for (const PlantCells& row : card.plants) text += cell_row(row, row.cells[i]);
  }
  return text;
}

std::string card_json(const Card& card) {
  const Kinds answers = kinds_shown(card, &changes_answers), by_d = kinds_shown(card, &seen_by_d);
  Json plants = Json::array();
  for (const PlantCells& row : card.plants) {
    Json cells = Json::array();
    for (const CellSummary& s : row.cells) cells.push_back(cell_json(s));
    plants.push_back({{"kind", row.plant->kind},
                      {"form", row.plant->form},
                      {"host", row.plant->host},
                      {"decoy", is_decoy(*row.plant)},
                      {"cells", cells}});
  }
  return Json{{"model_hash", card.model_hash},
              {"complete", card.complete},
              {"error", kTestError},
              {"kinds", answers.all.size()},
              {"kinds_answers_change", answers.shown.size()},
              {"kinds_seen_by_d", by_d.shown.size()},
              {"plants", plants}}
             .dump(1) +
         "\n";
}

}  // namespace plumb::faults

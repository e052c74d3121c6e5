#include "investigator/report_facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "investigator/grade.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

constexpr const char* kWeakCell = "repetition";
constexpr double kRuledOutPosterior = 0.01;

// Calls `use` with each trial that the table of probes counts for a variant and cell: resolved, in the wording of the
// investigation, each prompt once.
template <class Use>
void for_each_counted(const Case& c, const Variant& variant, const std::string& cell, const Use& use) {
  std::set<std::uint64_t> seeds;
  for (const LaunchRecord& l : c.outcome.history.launches) {
    if (l.variant != variant) continue;
    for (const TrialRecord& t : l.trials)
      if (t.item.cell == cell && t.wording == c.outcome.findings.wording && t.grade != Grade::infrastructure &&
          seeds.insert(t.item.seed).second)
        use(t);
  }
}

std::optional<double> repetition_of(const History& h, const Variant& variant) {
  for (const LaunchRecord& l : h.launches)
    if (l.variant == variant)
      for (const TrialRecord& t : l.trials)
        if (t.item.cell == kWeakCell && t.grade == Grade::right && !t.steps.empty()) return gzip_ratio(t.steps[0].text);
  return std::nullopt;
}

int power_of_two_from(int tokens) {
  int power = 1;
  while (power < tokens) power *= 2;
  return power;
}

int tokens_of(const StepRecord& s) { return s.prompt_tokens.value_or(s.expected_tokens); }

}  // namespace

std::vector<Column> columns(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::vector<Column> all{{"as deployed", f.deployed}};
  if (f.reference != f.deployed) all.push_back({"reference", f.reference});
  for (const Round& r : f.rounds) {
    if (r.hypothesis.members.empty()) continue;
    Variant cured = r.bad;
    for (const std::size_t s : r.hypothesis.members) cured[s] = r.good[s];
    if (std::none_of(all.begin(), all.end(), [&](const Column& k) { return k.variant == cured; }))
      all.push_back({"cured", cured});
  }
  return all;
}

Counts counts_in_report(const Case& c, const Variant& variant, const std::string& cell) {
  Counts counts;
  for_each_counted(c, variant, cell, [&](const TrialRecord& t) { counts += {is_failure(t.grade) ? 1 : 0, 1}; });
  return counts;
}

TrialAccount account_of(const Case& c) {
  const auto cols = columns(c);
  std::set<std::tuple<Variant, std::string, std::uint64_t>> seen;
  TrialAccount a;
  for (const LaunchRecord& l : c.outcome.history.launches) {
    const bool in_table =
        std::any_of(cols.begin(), cols.end(), [&](const Column& k) { return k.variant == l.variant; });
    for (const TrialRecord& t : l.trials) {
      if (t.grade == Grade::infrastructure)
        ++a.unanswered;
      else if (t.wording != c.outcome.findings.wording)
        ++a.other_wording;
      else if (is_weak(t.item.cell))
        ++a.weak;
      else if (!in_table)
        ++a.other_variants;
      else if (seen.insert({l.variant, t.item.cell, t.item.seed}).second)
        ++a.shown;
      else
        ++a.repeated;
    }
  }
  return a;
}

std::vector<ProbeRow> probe_rows(const Case& c) {
  const auto cols = columns(c);
  std::vector<ProbeRow> rows;
  for (const std::string& cell : c.plan.cells) {
    ProbeRow row{.cell = cell, .weak = is_weak(cell), .counts = {}, .gzip = {}, .steps = {}};
    std::map<std::string, std::vector<Counts>> steps;
    for (std::size_t i = 0; i < cols.size(); ++i) {
      row.counts.push_back(counts_in_report(c, cols[i].variant, cell));
      if (row.weak) row.gzip.push_back(repetition_of(c.outcome.history, cols[i].variant));
      for_each_counted(c, cols[i].variant, cell, [&](const TrialRecord& t) {
        for (const StepRecord& s : t.steps) {
          if (!s.graded || s.step.empty()) continue;
          steps[s.step].resize(cols.size());
          steps[s.step][i] += {is_failure(s.grade) ? 1 : 0, 1};
        }
      });
    }
    if (!row.weak)
      for (const auto& [name, counts] : steps) row.steps.push_back({name, counts});
    rows.push_back(std::move(row));
  }
  return rows;
}

HeatMap heat_map(const Case& c) {
  const auto cols = columns(c);
  HeatMap map;
  // counts by variant, probe and length, before the columns are known
  std::vector<std::map<std::string, std::map<int, Counts>>> found(cols.size());
  std::set<int> lengths;
  for (const std::string& cell : c.plan.cells) {
    if (is_weak(cell)) continue;
    const std::string probe = cell.substr(0, cell.find('@'));
    if (std::find(map.probes.begin(), map.probes.end(), probe) == map.probes.end()) map.probes.push_back(probe);
    for (std::size_t i = 0; i < cols.size(); ++i)
      for_each_counted(c, cols[i].variant, cell, [&](const TrialRecord& t) {
        for (const StepRecord& s : t.steps) {
          if (!s.graded || s.grade == Grade::infrastructure) continue;
          const int length = power_of_two_from(tokens_of(s));
          lengths.insert(length);
          found[i][probe][length] += {is_failure(s.grade) ? 1 : 0, 1};
        }
      });
  }
  map.lengths.assign(lengths.begin(), lengths.end());
  if (map.lengths.size() > kMaxHeatColumns)
    map.lengths.erase(map.lengths.begin(), map.lengths.end() - static_cast<std::ptrdiff_t>(kMaxHeatColumns));
  for (std::size_t i = 0; i < cols.size(); ++i) {
    map.variants.push_back(cols[i].name);
    auto& rows = map.counts.emplace_back();
    for (const std::string& probe : map.probes) {
      auto& row = rows.emplace_back(map.lengths.size());
      for (const auto& [length, counts] : found[i][probe]) {
        const auto at = std::lower_bound(map.lengths.begin(), map.lengths.end(), length);
        row[static_cast<std::size_t>(at - map.lengths.begin())] += counts;
      }
    }
  }
  return map;
}

std::string variant_name(const Case& c, const Variant& variant) {
  constexpr std::size_t kMostNamed = 2;
  std::string nearest;
  std::vector<std::size_t> least(variant.size() + 1);
  for (const Column& k : columns(c))
    if (auto apart = difference(k.variant, variant); apart.size() < least.size()) {
      nearest = k.name;
      least = std::move(apart);
    }
  if (least.size() > kMostNamed) return fmt::format("{}, {} switches turned", nearest, least.size());
  for (const std::size_t s : least)
    nearest += fmt::format(", {} {}", c.plan.deployment.switches[s].name, variant[s] ? "on" : "off");
  return nearest;
}

std::vector<LaunchEntry> launch_entries(const Case& c) {
  std::vector<LaunchEntry> entries;
  double now = 0;
  for (const LaunchRecord& l : c.outcome.history.launches) {
    LaunchEntry e;
    e.id = l.id;
    e.label = l.label;
    e.variant = l.variant;
    e.variant_name = variant_name(c, l.variant);
    e.phase = l.label.substr(0, l.label.find('/'));
    e.status = l.status;
    e.starts = l.starts;
    e.host = l.host;
    e.ready_s = l.ready_s;
    e.trials = static_cast<int>(l.trials.size());
    for (const bool on : l.variant) e.bits += on ? '1' : '0';
    for (const TrialRecord& t : l.trials) {
      e.right += t.grade == Grade::right ? 1 : 0;
      e.failing += is_failure(t.grade) ? 1 : 0;
    }
    e.begin_s = e.end_s = now;
    if (!l.trials.empty()) {
      double first_s = 0;
      for (const StepRecord& s : l.trials.front().steps) first_s += s.seconds;
      e.begin_s = std::max(now, l.trials.front().at_s - first_s - l.ready_s);
      e.end_s = std::max(e.begin_s, l.trials.back().at_s);
    }
    now = e.end_s;
    entries.push_back(std::move(e));
  }
  return entries;
}

std::vector<FailingStep> failing_steps(const Case& c) {
  std::vector<FailingStep> all;
  for (const LaunchRecord& l : c.outcome.history.launches)
    for (const TrialRecord& t : l.trials)
      for (const StepRecord& s : t.steps)
        if (s.graded && is_failure(s.grade)) all.push_back({&l, &t, &s});
  return all;
}

std::string main_cell(const Case& c) {
  const Findings& f = c.outcome.findings;
  if (!f.rounds.empty()) return f.rounds.front().cell;
  std::string chosen;
  int most = 0;
  for (const std::string& cell : c.plan.cells)
    if (const Counts counts = counts_in_report(c, f.deployed, cell); !is_weak(cell) && counts.failures > most) {
      most = counts.failures;
      chosen = cell;
    }
  return chosen;
}

std::vector<Counts> main_counts(const Case& c) {
  const std::string cell = main_cell(c);
  std::vector<Counts> all;
  for (const Column& k : columns(c)) {
    Counts counts;
    for (const std::string& each : c.plan.cells)
      if (cell.empty() ? !is_weak(each) : each == cell) counts += counts_in_report(c, k.variant, each);
    all.push_back(counts);
  }
  return all;
}

std::optional<Column> who_is_right(const Case& c, const Reproduction& repro) {
  for (const Column& k : columns(c)) {
    if (k.variant == repro.variant) continue;
    for (const LaunchRecord& l : c.outcome.history.launches)
      if (l.variant == k.variant)
        for (const TrialRecord& t : l.trials)
          if (t.item == repro.item && t.grade == Grade::right) return k;
  }
  return std::nullopt;
}

bool is_ruled_out(const Round& round, const SwitchRow& row) {
  const auto& members = round.hypothesis.members;
  if (std::find(members.begin(), members.end(), row.index) != members.end()) return false;
  if (!row.cures || !row.harms) return row.posterior <= kRuledOutPosterior;
  return !*row.cures && !*row.harms;
}

std::optional<double> prompt_speed(const History& h, const Variant& variant) {
  double tokens = 0;
  double seconds = 0;
  for (const LaunchRecord& l : h.launches)
    if (l.variant == variant)
      for (const TrialRecord& t : l.trials)
        for (const StepRecord& s : t.steps) {
          tokens += tokens_of(s);
          seconds += s.seconds;
        }
  return seconds > 0 ? std::optional(tokens / seconds) : std::nullopt;
}

}  // namespace plumb::investigator

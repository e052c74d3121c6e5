#include <nlohmann/json.hpp>

#include "investigator/report.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportVersion = 1;  // of the keys below `report`; counts up when one changes its meaning

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json counts_json(Counts counts) {
  Json j{{"failures", counts.failures}, {"trials", counts.trials}, {"low_95", nullptr}, {"high_95", nullptr}};
  if (counts.trials == 0) return j;
  const Interval interval = interval_95(counts.failures, counts.trials);
  j["low_95"] = interval.low;
  j["high_95"] = interval.high;
  return j;
}

Json sides_json(const Case& c, const Variant& variant) {
  Json j = Json::object();
  for (std::size_t i = 0; i < variant.size(); ++i) j[c.plan.deployment.switches[i].name] = variant[i] ? "on" : "off";
  return j;
}

Json verdict_document(const Verdict& v) {
  Json culprits = Json::array();
  for (const Culprit& k : v.culprits)
    culprits.push_back({{"switch", k.switch_name}, {"side", k.side}, {"processes", k.processes}, {"word", k.word}});
  return {{"verdict", v.verdict},
          {"culprits", culprits},
          {"class", v.klass},
          {"posterior", or_null(v.posterior)},
          {"posterior_flat_prior", or_null(v.posterior_flat_prior)},
          {"launches", {{"floor", v.floor_launches}, {"search", v.search_launches}, {"confirm", v.confirm_launches}}},
          {"trials", v.trials},
          {"bounds",
           {{"trial_failure_rate_95", or_null(v.trial_failure_rate_95)},
            {"launch_failure_rate_95", or_null(v.launch_failure_rate_95)}}},
          {"not_covered", v.not_covered}};
}

Json probes_json(const Case& c) {
  const auto cols = columns(c);
  Json list = Json::array();
  for (const ProbeRow& row : probe_rows(c))
    for (std::size_t i = 0; i < cols.size(); ++i) {
      Json j{{"probe", row.cell}, {"variant", cols[i].name}, {"weak", row.weak}};
      j.update(counts_json(row.counts[i]));
      j["gzip_ratio"] = row.weak ? or_null(row.gzip[i]) : Json();
      Json steps = Json::object();
      for (const ProbeRow::Step& step : row.steps) steps[step.name] = counts_json(step.counts[i]);
      j["steps"] = steps;
      list.push_back(std::move(j));
    }
  return list;
}

Json round_json(const Case& c, const Round& r) {
  Json rows = Json::array();
  for (const SwitchRow& row : r.rows)
    rows.push_back({{"switch", c.plan.deployment.switches[row.index].name},
                    {"failing_side", r.bad[row.index] ? "on" : "off"},
                    {"cure", counts_json(row.cure)},
                    {"cures", or_null(row.cures)},
                    {"harm", counts_json(row.harm)},
                    {"harms", or_null(row.harms)},
                    {"posterior", row.posterior},
                    {"ruled_out", is_ruled_out(r, row)},
                    {"note", row.note}});
  Json contrasts = Json::array();
  for (const Contrast& k : r.contrasts)
    contrasts.push_back({{"name", k.name},
                         {"pairs", k.pairs},
                         {"failed", k.failed},
                         {"wrongly_failed", k.wrongly_failed},
                         {"e_value", k.e_value}});
  return {{"probe", r.cell},
          {"failing_variant", sides_json(c, r.bad)},
          {"passing_variant", sides_json(c, r.good)},
          {"trials_per_launch", r.trials_per_launch},
          {"failures_of_a_failing_launch", r.threshold},
          {"replays", r.replays},
          {"switches", rows},
          {"contrasts", contrasts},
          {"checks", r.checks},
          {"confirmed", r.confirmed}};
}

Json launches_json(const Case& c, const Report& report) {
  Json list = Json::array();
  for (const LaunchEntry& e : report.launches)
    list.push_back({{"id", e.id},
                    {"label", e.label},
                    {"variant", sides_json(c, e.variant)},
                    {"status", status_name(e.status)},
                    {"starts", e.starts},
                    {"host", e.host == 0 ? Json() : Json(e.host)},
                    {"ready_s", e.ready_s},
                    {"begin_s", e.begin_s},
                    {"end_s", e.end_s},
                    {"right", e.right},
                    {"failing", e.failing},
                    {"trials", e.trials}});
  return list;
}

Json suspicion_json(const Report& report) {
  Json list = Json::array();
  for (const PosteriorTrace& trace : report.suspicion) {
    Json points = Json::array();
    for (const PosteriorTrace::Point& p : trace.points)
      points.push_back({{"launch", p.launch}, {"failed", p.failed}, {"probabilities", p.probabilities}});
    list.push_back({{"probe", trace.cell}, {"switches", trace.switches}, {"points", points}});
  }
  return list;
}

Json recall_json(const HeatMap& map) {
  Json list = Json::array();
  for (std::size_t v = 0; v < map.variants.size(); ++v)
    for (std::size_t p = 0; p < map.probes.size(); ++p)
      for (std::size_t l = 0; l < map.lengths.size(); ++l) {
        const Counts counts = map.counts[v][p][l];
        if (counts.trials > 0)
          list.push_back({{"variant", map.variants[v]},
                          {"probe", map.probes[p]},
                          {"tokens_at_most", map.lengths[l]},
                          {"right", counts.trials - counts.failures},
                          {"questions", counts.trials}});
      }
  return list;
}

Json environment_json_of(const Case& c) {
  const Environment& e = c.environment;
  Json j = Json::object();
  const auto add = [&](const char* key, const std::string& value) { j[key] = value.empty() ? Json() : Json(value); };
  add("date", e.date);
  add("cpu", e.cpu);
  add("os", e.os);
  add("plumb", e.plumb);
  add("commit", e.commit);
  add("model", e.model);
  add("model_hash", e.model_hash);
  return j;
}

Json distance_json(const Case& c) {
  const Findings& f = c.outcome.findings;
  Json rows = Json::array();
  for (const DistanceRow& row : f.distance.rows) {
    Json views = Json::array();
    for (const DistanceRow::View& v : row.views)
      views.push_back({{"path", path_name(v.path)},
                       {"cache", state_name(v.state)},
                       {"prompts", v.size.prompts},
                       {"d_mean", v.size.mean},
                       {"d_largest", v.size.largest},
                       {"from_cache", v.hits},
                       {"tokens_outside_list", v.outside_list}});
    rows.push_back({{"variant", row.repeated ? "reference again" : variant_name(c, row.variant)},
                    {"sides", sides_json(c, row.variant)},
                    {"launches", row.launches},
                    {"texts", views},
                    {"texts_tokenised_otherwise", row.incomparable},
                    {"e_value_farther", row.e_farther},
                    {"shift", or_null(row.budget)},
                    {"e_value_over", row.e_over},
                    {"word", row.word.empty() ? Json() : Json(row.word)}});
  }
  Json over = Json::array();
  for (const OverBudget& o : f.over_budget)
    over.push_back({{"switch", c.plan.deployment.switches[o.index].name},
                    {"shift", o.shift},
                    {"d_mean", o.size.mean},
                    {"d_largest", o.size.largest},
                    {"pairs", o.contrast.pairs},
                    {"over", o.contrast.failed},
                    {"reference_over", o.contrast.wrongly_failed},
                    {"e_value", o.contrast.e_value}});
  return {{"measured", f.distance.measured},
          {"why_not", f.distance.measured ? Json() : Json(f.distance.why_not)},
          {"variants", rows},
          {"over_budget", over}};
}

Json joint_json(const Case& c) {
  if (!c.outcome.findings.joint) return {};
  const Joint& joint = *c.outcome.findings.joint;
  Json shares = Json::array();
  for (std::size_t i = 0; i < joint.members.size(); ++i)
    shares.push_back({{"switch", c.plan.deployment.switches[joint.members[i]].name},
                      {"share", joint.shares[i].share},
                      {"low_95", joint.shares[i].low},
                      {"high_95", joint.shares[i].high},
                      {"d", joint.model.terms[i]}});
  Json pairs = Json::array();
  for (const AdditiveModel::Pair& p : joint.model.pairs)
    pairs.push_back({{"switches",
                      {c.plan.deployment.switches[joint.members[p.first]].name,
                       c.plan.deployment.switches[joint.members[p.second]].name}},
                     {"d", p.term}});
  return {{"shares", shares},           {"pairs", pairs},
          {"launches", joint.launches}, {"explained", joint.model.explained},
          {"dose_p", joint.dose_p},     {"concluded", joint.concluded}};
}

std::string dump(const Json& j) {
  // Names and messages may come from a server; what is not UTF-8 in them is replaced.
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string verdict_json(const Verdict& v) { return dump(verdict_document(v)); }

std::string report_json(const Case& c, const Report& report) {
  const Findings& f = c.outcome.findings;
  Json j = verdict_document(f.verdict);
  Json variants = Json::object();
  for (const Column& k : columns(c)) variants[k.name] = sides_json(c, k.variant);
  Json rounds = Json::array();
  for (const Round& r : f.rounds) rounds.push_back(round_json(c, r));
  Json reproduction;
  if (!report.repro.script.empty())
    reproduction = {{"probe", report.repro.probe},
                    {"seed", report.repro.item.seed},
                    {"variant", sides_json(c, report.repro.variant)},
                    {"requests", report.repro.bodies.size()},
                    {"expected", report.repro.expected},
                    {"got", report.repro.got}};
  j["report"] = {{"version", kReportVersion},
                 {"deployment", c.plan.deployment.name},
                 {"finished", c.ended},
                 {"seed", c.plan.seed},
                 {"wording", f.wording ? Json(wording_name(*f.wording)) : Json()},
                 {"seconds", c.outcome.history.elapsed_s},
                 {"limits",
                  {{"launches", c.plan.limits.max_restarts},
                   {"minutes", c.plan.limits.max_minutes},
                   {"prompt_tokens", c.plan.limits.max_tokens == 0 ? Json() : Json(c.plan.limits.max_tokens)}}},
                 {"budget_reached", f.budget.empty() ? Json() : Json(f.budget)},
                 {"environment", environment_json_of(c)},
                 {"variants", variants},
                 {"probes", probes_json(c)},
                 {"recall_by_length", recall_json(report.recall)},
                 {"floor",
                  {{"launches", f.floor.launches},
                   {"compared_replies", f.floor.compared_replies},
                   {"different_replies", f.floor.different_replies}}},
                 {"distance", distance_json(c)},
                 {"rounds", rounds},
                 {"joint", joint_json(c)},
                 {"posterior_by_launch", suspicion_json(report)},
                 {"launch_log", launches_json(c, report)},
                 {"reasons", f.reasons},
                 {"open_questions", f.open_questions},
                 {"reproduction", reproduction}};
  return dump(j);
}

}  // namespace plumb::investigator

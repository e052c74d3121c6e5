#include <algorithm>

#include <fmt/format.h>

#include "investigator/paired.h"
#include "investigator/report_model.h"

namespace plumb::investigator {
namespace {

std::string view_name(const DistanceRow::View& v) {
  if (v.path == ScorePath::scored) return "scored";
  return fmt::format("generated, {}", v.state == CacheState::cold ? "cold" : "sent again");
}

std::string size_text(const DistanceSize& s) { return fmt::format("{:.2g} / {:.2g}", s.mean, s.largest); }

Table distance_table(const Case& c) {
  Table table{"Distance of log-probabilities from the reference",
              {"variant", "texts", "D mean / largest", "prompts", "from the cache", "budget", "word"},
              {}};
  for (const DistanceRow& row : c.outcome.findings.distance.rows) {
    Line name{foreign(row.repeated ? "reference again" : variant_name(c, row.variant))};
    if (row.incomparable > 0)
      name.push_back(
          text(fmt::format(" ({} tokenised otherwise)", counted(static_cast<std::size_t>(row.incomparable), "text"))));
    for (const DistanceRow::View& v : row.views) {
      std::string d = size_text(v.size);
      if (v.outside_list > 0)
        d += fmt::format(" at least ({} outside the list)", counted(static_cast<std::size_t>(v.outside_list), "token"));
      table.rows.push_back({name,
                            {text(view_name(v))},
                            {text(d)},
                            {text(std::to_string(v.size.prompts))},
                            {text(v.state == CacheState::hit ? std::to_string(v.hits) : "–")},
                            {text(row.budget ? fmt::format("{:.2g}", *row.budget) : "–")},
                            {row.word.empty() ? text("–") : text(row.word)}});
    }
  }
  return table;
}

Blocks joint_blocks(const Case& c, const Joint& joint) {
  const Findings& f = c.outcome.findings;
  Table table{"Shares of the distance", {"switch", "share", "95 % interval over prompts"}, {}};
  for (std::size_t i = 0; i < joint.members.size(); ++i) {
    const Share& share = joint.shares[i];
    table.rows.push_back({{foreign(c.plan.deployment.switches[joint.members[i]].name)},
                          {text(fmt::format("{:.0f} %", 100 * share.share))},
                          {text(fmt::format("{:.0f}–{:.0f} %", 100 * share.low, 100 * share.high))}});
  }
  std::string pairs;
  for (const AdditiveModel::Pair& p : joint.model.pairs)
    pairs += fmt::format("; {} and {} add {:.2g} together", c.plan.deployment.switches[joint.members[p.first]].name,
                         c.plan.deployment.switches[joint.members[p.second]].name, p.term);
  Blocks out{Heading{2, {text("Many small differences")}}, std::move(table)};
  out.push_back(Paragraph{{foreign(fmt::format(
      "{} D adds up over switches: the sum explains {:.0f} % of {}{}. Failing launches are farther away than passing "
      "ones (p {:.2g}).",
      f.verdict.verdict == "joint" ? "No single culprit." : "Not shown to be a joint damage.",
      100 * joint.model.explained, counted(static_cast<std::size_t>(joint.launches), "launch"), pairs,
      joint.dose_p))}});
  return out;
}

}  // namespace

Blocks report_distance(const Case& c) {
  const Findings& f = c.outcome.findings;
  Blocks out{Heading{2, {text("Distance of log-probabilities from the reference")}}};
  if (!f.distance.measured) {
    out.push_back(Paragraph{{text("Not measured: "), foreign(f.distance.why_not), text(".")}});
    return out;
  }
  out.push_back(distance_table(c));
  out.push_back(Paragraph{
      {text("D is half the mean square change of log-probabilities over the tokens of fixed texts, in nats squared; "
            "one value a "
            "prompt. “reference again” is the floor: what differs when nothing was changed. A difference is listed and "
            "accuses nobody; over budget means more than the switch's declared shift, with that switch alone turned.")},
      true});
  Items items;
  for (const OverBudget& o : f.over_budget)
    items.lines.push_back(
        {foreign(o.contrast.name),
         text(fmt::format(": D {} against a declared shift of {:.2g}; {}/{} launches with it alone were over, {}/{} of "
                          "the reference; e-value {:.3g}",
                          size_text(o.size), o.shift, o.contrast.failed, o.contrast.pairs, o.contrast.wrongly_failed,
                          o.contrast.pairs, o.contrast.e_value))});
  if (!items.lines.empty()) out.push_back(std::move(items));
  if (f.joint) append(out, joint_blocks(c, *f.joint));
  return out;
}

}  // namespace plumb::investigator

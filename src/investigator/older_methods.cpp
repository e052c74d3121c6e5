#include "investigator/older_methods.h"

#include <algorithm>
#include <cmath>

#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;

// Jöhnk's rejection method: two powers of uniforms whose sum is at most 1.
double draw_beta(Rng& rng, double a, double b) {
  for (;;) {
    const double x = std::pow(rng.uniform(), 1 / a);
    const double y = std::pow(rng.uniform(), 1 / b);
    if (x + y > 0 && x + y <= 1) return x / (x + y);
  }
}

std::vector<std::size_t> complement(const std::vector<std::size_t>& all, const std::vector<std::size_t>& part) {
  std::vector<std::size_t> rest;
  std::set_difference(all.begin(), all.end(), part.begin(), part.end(), std::back_inserter(rest));
  return rest;
}

}  // namespace

OlderResult one_at_a_time(const Variant& bad, const Variant& good, const LaunchTester& fails) {
  OlderResult result;
  std::vector<std::size_t> cures;
  std::vector<std::size_t> harms;
  for (const std::size_t s : difference(bad, good)) {
    Variant v = bad;
    v[s] = good[s];
    if (!fails(v)) cures.push_back(s);
    v = good;
    v[s] = bad[s];
    if (fails(v)) harms.push_back(s);
    result.launches += 2;
  }
  result.culprits = harms.empty() ? cures : harms;
  return result;
}

OlderResult by_ddmin(const Variant& bad, const Variant& good, const LaunchTester& fails) {
  OlderResult result;
  const std::vector<std::size_t> all = difference(bad, good);
  const auto fails_with = [&](const std::vector<std::size_t>& set) {
    Variant v = good;
    for (const std::size_t s : set) v[s] = bad[s];
    ++result.launches;
    return fails(v);
  };
  std::vector<std::size_t> set = all;
  std::size_t parts = 2;
  while (set.size() >= 2) {
    bool reduced = false;
    const auto part = [&](std::size_t i) {
      return std::vector<std::size_t>(set.begin() + static_cast<long>(i * set.size() / parts),
                                      set.begin() + static_cast<long>((i + 1) * set.size() / parts));
    };
    for (std::size_t i = 0; i < parts && !reduced; ++i)
      if (const auto one = part(i); fails_with(one)) {
        set = one;
        parts = 2;
        reduced = true;
      }
    for (std::size_t i = 0; i < parts && !reduced && parts > 2; ++i)
      if (const auto rest = complement(set, part(i)); fails_with(rest)) {
        set = rest;
        parts = std::max<std::size_t>(2, parts - 1);
        reduced = true;
      }
    if (reduced) continue;
    if (parts >= set.size()) break;
    parts = std::min(set.size(), 2 * parts);
  }
  result.culprits = set;
  return result;
}

double TruthDraw::rate_of(const Variant& variant) const {
  const auto on = [&](std::size_t s) { return static_cast<bool>(variant[s]); };
  switch (rule.kind) {
    case Class::base:
      return bad_rate;
    case Class::none:
      return good_rate;
    case Class::any_of:
      return std::any_of(rule.members.begin(), rule.members.end(), on) ? bad_rate : good_rate;
    case Class::all_of:
      return std::all_of(rule.members.begin(), rule.members.end(), on) ? bad_rate : good_rate;
    case Class::other:
      break;
  }
  std::uint64_t hash = seed;
  for (const bool side : variant) hash = mix64(hash ^ (side ? 1u : 2u));
  Rng rng(hash);
  return draw_beta(rng, 0.5, 0.5);
}

TruthDraw draw_truth(Rng& rng, std::size_t switches) {
  // The prior of the classes as posterior.h states it.
  struct Share {
    Class kind;
    std::size_t members;
    double share;
  };
  constexpr Share kShares[] = {{Class::any_of, 1, 0.5},  {Class::any_of, 2, 0.12}, {Class::all_of, 2, 0.12},
                               {Class::any_of, 3, 0.04}, {Class::all_of, 3, 0.04}, {Class::none, 0, 0.06},
                               {Class::base, 0, 0.06},   {Class::other, 0, 0.06}};
  TruthDraw truth;
  double u = rng.uniform();
  const Share* chosen = &kShares[std::size(kShares) - 1];
  for (const Share& s : kShares) {
    if (u < s.share) {
      chosen = &s;
      break;
    }
    u -= s.share;
  }
  truth.rule.kind = chosen->kind;
  while (truth.rule.members.size() < chosen->members) {
    const auto s = static_cast<std::size_t>(rng.below(switches));
    if (std::find(truth.rule.members.begin(), truth.rule.members.end(), s) == truth.rule.members.end())
      truth.rule.members.push_back(s);
  }
  std::sort(truth.rule.members.begin(), truth.rule.members.end());
  truth.bad_rate = rng.uniform() < 0.7 ? draw_beta(rng, 20, 0.5) : draw_beta(rng, 2, 1);
  truth.good_rate = rng.uniform() < 0.7 ? draw_beta(rng, 0.5, 30) : draw_beta(rng, 0.5, 6);
  truth.seed = rng.next();
  return truth;
}

}  // namespace plumb::investigator

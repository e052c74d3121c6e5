#include "investigator/additive.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/rng.h"

namespace plumb::investigator {
namespace {

using Matrix = std::vector<std::vector<double>>;

constexpr double kTolerance = 1e-12;  // of a gradient and a pivot, relative to the largest diagonal entry

// The least-squares solution over the chosen columns; nullopt: they depend on each other.
std::optional<std::vector<double>> solve(const Matrix& gram, const std::vector<double>& right,
                                         const std::vector<std::size_t>& chosen, double scale) {
  const std::size_t n = chosen.size();
  Matrix l(n, std::vector<double>(n, 0));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = gram[chosen[i]][chosen[j]];
      for (std::size_t k = 0; k < j; ++k) sum -= l[i][k] * l[j][k];
      if (i == j && sum <= kTolerance * scale) return std::nullopt;
      l[i][j] = i == j ? std::sqrt(sum) : sum / l[j][j];
    }
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = right[chosen[i]];
    for (std::size_t k = 0; k < i; ++k) x[i] -= l[i][k] * x[k];
    x[i] /= l[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) x[i] -= l[k][i] * x[k];
    x[i] /= l[i][i];
  }
  return x;
}

// One non-negative least-squares problem by its normal equations.
class ActiveSet {
 public:
  ActiveSet(const Matrix& a, const std::vector<double>& b) : size_(a.empty() ? 0 : a[0].size()) {
    gram_.assign(size_, std::vector<double>(size_, 0));
    right_.assign(size_, 0);
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t i = 0; i < size_; ++i) {
        right_[i] += a[r][i] * b[r];
        for (std::size_t j = 0; j < size_; ++j) gram_[i][j] += a[r][i] * a[r][j];
      }
    for (std::size_t i = 0; i < size_; ++i) scale_ = std::max(scale_, gram_[i][i]);
    for (const double value : right_) right_scale_ = std::max(right_scale_, std::abs(value));
  }

  std::vector<double> run() {
    x_.assign(size_, 0);
    barred_.assign(size_, false);
    // Each pass lowers the sum of squares, so no set comes twice; the bound is for rounding.
    for (std::size_t pass = 0; pass < 10 * size_ + 10; ++pass) {
      const auto entering = steepest();
      if (!entering) break;
      inside_.push_back(*entering);
      std::sort(inside_.begin(), inside_.end());
      if (!settle(*entering)) barred_[*entering] = true;
    }
    return x_;
  }

 private:
  std::optional<std::size_t> steepest() const {
    std::optional<std::size_t> best;
    double most = kTolerance * right_scale_;
    for (std::size_t i = 0; i < size_; ++i) {
      if (barred_[i] || std::find(inside_.begin(), inside_.end(), i) != inside_.end()) continue;
      double gradient = right_[i];
      for (std::size_t j = 0; j < size_; ++j) gradient -= gram_[i][j] * x_[j];
      if (gradient > most) {
        most = gradient;
        best = i;
      }
    }
    return best;
  }

  // Moves to the least-squares solution of the columns inside, along which those that reach zero leave. False: the one
  // that just entered depends on the others.
  bool settle(std::size_t entered) {
    while (!inside_.empty()) {
      const auto solved = solve(gram_, right_, inside_, scale_);
      if (!solved) {
        inside_.erase(std::find(inside_.begin(), inside_.end(), entered));
        return false;
      }
      double step = 1;
      for (std::size_t i = 0; i < inside_.size(); ++i)
        if ((*solved)[i] <= 0) step = std::min(step, x_[inside_[i]] / (x_[inside_[i]] - (*solved)[i]));
      std::vector<std::size_t> staying;
      for (std::size_t i = 0; i < inside_.size(); ++i) {
        double& x = x_[inside_[i]];
        x = step == 1 ? (*solved)[i] : x + step * ((*solved)[i] - x);
        if ((*solved)[i] <= 0 && x <= kTolerance * std::abs((*solved)[i])) x = 0;
        if (x > 0) staying.push_back(inside_[i]);
      }
      if (staying.size() == inside_.size()) return true;
      // The one that entered and left at once would enter again.
      if (std::find(staying.begin(), staying.end(), entered) == staying.end()) barred_[entered] = true;
      inside_ = std::move(staying);
    }
    return true;
  }

  std::size_t size_;
  Matrix gram_;
  std::vector<double> right_;
  double scale_ = 0;
  double right_scale_ = 0;
  std::vector<double> x_;
  std::vector<bool> barred_;
  std::vector<std::size_t> inside_;
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

using PairIndex = std::pair<std::size_t, std::size_t>;

struct Fit {
  AdditiveModel model;
  double squares = 0;  // weighted, of the residuals
};

// `d`: one value a sample.
Fit fit(const std::vector<AdditiveSample>& samples, const std::vector<double>& d, const std::vector<PairIndex>& pairs) {
  const std::size_t switches = samples[0].turned.size();
  const double typical = mean(d);
  Matrix a;
  std::vector<double> b;
  double total = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double weight = typical > 0 ? 1 / (d[i] + typical / 10) : 1;
    std::vector<double> row;
    for (std::size_t s = 0; s < switches; ++s) row.push_back(samples[i].turned[s] ? weight : 0);
    for (const auto& [s, t] : pairs) row.push_back(samples[i].turned[s] && samples[i].turned[t] ? weight : 0);
    a.push_back(std::move(row));
    b.push_back(d[i] * weight);
    total += b.back() * b.back();
  }
  const std::vector<double> x = non_negative_least_squares(a, b);
  Fit f;
  f.model.terms.assign(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(switches));
  for (std::size_t p = 0; p < pairs.size(); ++p)
    f.model.pairs.push_back({pairs[p].first, pairs[p].second, x[switches + p]});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    double residual = b[i];
    for (std::size_t j = 0; j < x.size(); ++j) residual -= a[i][j] * x[j];
    f.squares += residual * residual;
  }
  f.model.explained = total > 0 ? 1 - f.squares / total : 0;
  return f;
}

double criterion(const Fit& f, std::size_t samples, std::size_t parameters) {
  const auto n = static_cast<double>(samples);
  constexpr double kExact = 1e-12;  // squares below this are rounding
  return n * std::log(std::max(f.squares, kExact) / n) + static_cast<double>(parameters) * std::log(n);
}

std::vector<double> means_of(const std::vector<AdditiveSample>& samples) {
  std::vector<double> d;
  for (const AdditiveSample& s : samples) d.push_back(mean(s.d));
  return d;
}

}  // namespace

std::vector<double> non_negative_least_squares(const Matrix& a, const std::vector<double>& b) {
  CHECK(a.size() == b.size());
  return ActiveSet(a, b).run();
}

double AdditiveModel::predict(const std::vector<bool>& turned) const {
  double sum = 0;
  for (std::size_t s = 0; s < terms.size(); ++s) sum += turned[s] ? terms[s] : 0;
  for (const Pair& p : pairs) sum += turned[p.first] && turned[p.second] ? p.term : 0;
  return sum;
}

double AdditiveModel::share(std::size_t s, const std::vector<bool>& turned) const {
  const double all = predict(turned);
  if (!(all > 0) || !turned[s]) return 0;
  double own = terms[s];
  for (const Pair& p : pairs)
    if ((p.first == s || p.second == s) && turned[p.first] && turned[p.second]) own += p.term / 2;
  return own / all;
}

AdditiveModel fit_additive(const std::vector<AdditiveSample>& samples) {
  CHECK(!samples.empty());
  constexpr std::size_t kLaunchesPerPair = 3;
  const std::size_t switches = samples[0].turned.size();
  const std::vector<double> d = means_of(samples);
  std::vector<PairIndex> pairs;
  Fit best = fit(samples, d, pairs);
  double lowest = criterion(best, samples.size(), switches);
  const std::size_t most = samples.size() > switches ? (samples.size() - switches) / kLaunchesPerPair : 0;
  while (pairs.size() < most) {
    std::optional<PairIndex> added;
    Fit with_it = best;
    for (std::size_t s = 0; s < switches; ++s)
      for (std::size_t t = s + 1; t < switches; ++t) {
        if (std::find(pairs.begin(), pairs.end(), PairIndex{s, t}) != pairs.end()) continue;
        std::vector<PairIndex> tried = pairs;
        tried.emplace_back(s, t);
        Fit f = fit(samples, d, tried);
        if (f.squares >= with_it.squares) continue;
        with_it = std::move(f);
        added = PairIndex{s, t};
      }
    if (!added) break;
    const double value = criterion(with_it, samples.size(), switches + pairs.size() + 1);
    if (value > lowest - kPairEvidence) break;
    lowest = value;
    best = std::move(with_it);
    pairs.push_back(*added);
  }
  return best.model;
}

std::vector<Share> shares_of(const std::vector<AdditiveSample>& samples, const AdditiveModel& model,
                             const std::vector<bool>& turned, std::uint64_t seed) {
  constexpr int kDraws = 400;
  constexpr int kTail = 10;  // 2.5 % of the draws
  const std::size_t switches = turned.size();
  std::vector<PairIndex> pairs;
  for (const AdditiveModel::Pair& p : model.pairs) pairs.emplace_back(p.first, p.second);
  std::vector<std::vector<double>> drawn(switches);
  Rng rng(seed);
  const std::size_t prompts = samples[0].d.size();
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<double> d(samples.size(), 0);
    for (std::size_t i = 0; i < prompts; ++i) {
      const std::size_t prompt = rng.below(prompts);
      for (std::size_t s = 0; s < samples.size(); ++s) d[s] += samples[s].d[prompt] / static_cast<double>(prompts);
    }
    const AdditiveModel again = fit(samples, d, pairs).model;
    for (std::size_t s = 0; s < switches; ++s) drawn[s].push_back(again.share(s, turned));
  }
  std::vector<Share> shares;
  for (std::size_t s = 0; s < switches; ++s) {
    std::sort(drawn[s].begin(), drawn[s].end());
    shares.push_back({model.share(s, turned), drawn[s][kTail], drawn[s][kDraws - 1 - kTail]});
  }
  return shares;
}

double dose_p_value(const std::vector<double>& d, const std::vector<bool>& failed, std::uint64_t seed) {
  constexpr int kDraws = 4999;
  const auto failures = static_cast<std::size_t>(std::count(failed.begin(), failed.end(), true));
  if (failures == 0 || failures == failed.size()) return 1;
  std::vector<double> ranks;
  for (const double x : d) {
    double rank = 0;
    for (const double y : d) rank += y < x ? 1 : y == x ? 0.5 : 0;
    ranks.push_back(rank);
  }
  double seen = 0;
  for (std::size_t i = 0; i < d.size(); ++i) seen += failed[i] ? ranks[i] : 0;
  Rng rng(seed);
  int as_large = 1;
  for (int draw = 0; draw < kDraws; ++draw) {
    double sum = 0;
    // The first `failures` of a shuffle.
    for (std::size_t i = 0; i < failures; ++i) {
      std::swap(ranks[i], ranks[i + rng.below(ranks.size() - i)]);
      sum += ranks[i];
    }
    as_large += sum >= seen ? 1 : 0;
  }
  return static_cast<double>(as_large) / (kDraws + 1);
}

}  // namespace plumb::investigator

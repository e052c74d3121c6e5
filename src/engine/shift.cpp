#include "engine/shift.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "engine/local_sequence.h"

namespace plumb {
namespace {

constexpr std::int64_t kChunk = 128;  // tokens of a pass: logits of a whole text may not fit

double log_probability(std::span<const float> logits, std::int32_t id) {
  double peak = -math::kInfinity;
  for (const float logit : logits) peak = std::max(peak, static_cast<double>(logit));
  double total = 0.0;
  for (const float logit : logits) total += math::exp(static_cast<double>(logit) - peak);
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - peak - math::log(total);
}

}  // namespace

double Shift::mean() const {
  double sum = 0.0;
  for (const double d : per_text) sum += d;
  return per_text.empty() ? 0.0 : sum / static_cast<double>(per_text.size());
}

double Shift::upper() const { return per_text.empty() ? 0.0 : *std::max_element(per_text.begin(), per_text.end()); }

std::vector<double> token_log_probabilities(Engine& engine, const Settings& settings,
                                            std::span<const std::int32_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size()), vocab = engine.config().vocab_size;
  std::vector<double> result;
  std::vector<float> logits(static_cast<std::size_t>(kChunk * vocab));
  LocalSequence sequence(engine.layout());
  for (std::int64_t first = 0; first + 1 < count; first += kChunk) {
    const std::int64_t tokens = std::min(kChunk, count - 1 - first);
    const BatchSequence in{&sequence.reserve(first + tokens),
                           ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tokens)), true,
                           nullptr};
    engine.forward({std::span(&in, 1), &settings}, {logits.data(), {tokens, vocab}});
    for (std::int64_t i = 0; i < tokens; ++i)
      result.push_back(log_probability(
          std::span(logits).subspan(static_cast<std::size_t>(i * vocab), static_cast<std::size_t>(vocab)),
          ids[static_cast<std::size_t>(first + i + 1)]));
  }
  return result;
}

ShiftMeter::ShiftMeter(std::shared_ptr<const Model> model, std::shared_ptr<Executor> executor, Backend backend,
                       std::vector<std::vector<std::int32_t>> texts)
    : model_(std::move(model)), executor_(std::move(executor)), backend_(backend), texts_(std::move(texts)) {
  for (const auto& text : texts_) CHECK(text.size() >= 2);
  Engine engine(model_, executor_, backend_);
  for (std::size_t i = 0; i < texts_.size() && finite(); ++i)
    off_.push_back(token_log_probabilities(engine, Settings(), texts_[i]));
}

bool ShiftMeter::finite() const {
  for (const auto& text : off_)
    for (const double value : text)
      if (!std::isfinite(value)) return false;
  return true;
}

Shift ShiftMeter::measure(std::size_t index) {
  CHECK(finite());
  Settings settings;
  CHECK(settings.set(kSwitches[index].name, "on"));
  Engine engine(model_, executor_, backend_, settings);
  Shift shift;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const SideCounts before = side_counts(index);
    const std::vector<double> on = token_log_probabilities(engine, settings, texts_[i]);
    shift.reached = side_counts(index).on != before.on;
    if (!shift.reached) return {.per_text = {}, .reached = false};
    double sum = 0.0;
    for (std::size_t t = 0; t < on.size(); ++t) sum += (on[t] - off_[i][t]) * (on[t] - off_[i][t]);
    // A NaN would compare as neither near nor far, and get lost where the largest is taken.
    shift.per_text.push_back(std::isfinite(sum) ? sum / static_cast<double>(on.size()) / 2 : math::kInfinity);
  }
  return shift;
}

}  // namespace plumb

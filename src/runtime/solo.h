#pragma once

// For tests only: what a request gives on its own, computed in the plainest way.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/local_sequence.h"
#include "runtime/runtime.h"
#include "runtime/sampler.h"

namespace plumb {

/// What a sink was told.
struct Reply {
  std::vector<TokenScore> prompt;
  std::vector<TokenScore> tokens;
  Finish reason{};
  Usage usage;
};

/// The settings that must give the same bits as `settings`: every switch that is equal to the bit is off.
inline Settings reference_of(const Settings& settings) {
  Settings reference = settings;
  for (const Switch& entry : kSwitches)
    if (entry.op_budget.metric == Metric::exact) CHECK(reference.set(entry.name, "off"));
  return reference;
}

/// An engine for `run_solo` that must give the same bits as any runtime made from these options.
inline Engine solo_engine(std::shared_ptr<const Model> model, const RuntimeOptions& options) {
  return Engine(std::move(model), std::make_shared<InlineExecutor>(), options.backend, reference_of(options.launch));
}

/// A cold run: the prompt in one pass, then one token a pass; no pool, cache, batch or scheduler.
inline Reply run_solo(Engine& engine, const GenerateRequest& request) {
  const Settings settings = reference_of(request.settings);
  const std::int64_t vocab = engine.config().vocab_size;
  LocalSequence sequence(engine.layout());
  std::vector<std::int32_t> tokens = request.prompt;
  SeenTokens seen(request.prompt);
  Reply reply;
  std::vector<float> logits;
  while (true) {
    const std::int64_t length = sequence.state().length, count = static_cast<std::int64_t>(tokens.size()) - length;
    const bool score = length == 0 && request.prompt_logprobs;
    const BatchSequence in{&sequence.reserve(length + count), std::span(tokens).last(static_cast<std::size_t>(count)),
                           score, nullptr};
    const std::int64_t rows = score ? count : 1;
    logits.resize(static_cast<std::size_t>(rows * vocab));
    engine.forward({std::span(&in, 1), &settings}, {logits.data(), {rows, vocab}});
    const auto row = [&](std::int64_t i) {
      return std::span(logits).subspan(static_cast<std::size_t>(i * vocab), static_cast<std::size_t>(vocab));
    };
    if (score)
      for (std::int64_t p = 0; p + 1 < count; ++p)
        reply.prompt.push_back(
            score_token(row(p), tokens[static_cast<std::size_t>(p) + 1], request.top_logprobs, settings));
    reply.reason = Finish::length;
    if (request.max_tokens == 0) return reply;
    std::vector<float> adjusted(row(rows - 1).begin(), row(rows - 1).end());
    adjust_logits(adjusted, request.sampling, seen);
    const std::int32_t token =
        sample_token(adjusted, request.sampling, static_cast<std::int64_t>(tokens.size()), settings);
    reply.tokens.push_back(score_token(row(rows - 1), token, request.top_logprobs, settings));
    tokens.push_back(token);
    seen.add_generated(token);
    if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
      reply.reason = Finish::stop;
      return reply;
    }
    if (static_cast<std::int64_t>(reply.tokens.size()) == request.max_tokens) return reply;
  }
}

}  // namespace plumb

#include "runtime/memory_plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <unistd.h>

#include "runtime/steps.h"

namespace plumb {
namespace {

std::int64_t planned_window_pages(const RuntimeOptions& plan, const StateLayout& layout) {
  return plan.max_running * pass_window_pages(layout, plan.chunk_tokens) +
         pass_window_pages(layout, plan.max_context_tokens);
}

Rejection invalid(std::string message) { return {Rejection::Kind::invalid, std::move(message)}; }

bool within(double x, double low, double high) { return low <= x && x <= high; }  // false for NaN

// The bounds that clients know from the API.
std::optional<Rejection> refuse_sampling(const Sampling& sampling, std::int64_t vocab_size) {
  constexpr double kUnbounded = std::numeric_limits<double>::max();
  if (!within(sampling.temperature, 0, kUnbounded))
    return invalid(fmt::format("temperature {}: must be 0 or more", sampling.temperature));
  if (!within(sampling.top_p, 0, 1) || !within(sampling.min_p, 0, 1))
    return invalid(fmt::format("top_p {} and min_p {}: must be from 0 to 1", sampling.top_p, sampling.min_p));
  for (const double penalty : {sampling.presence_penalty, sampling.frequency_penalty})
    if (!within(penalty, -2, 2))
      return invalid(fmt::format("presence or frequency penalty {}: must be from -2 to 2", penalty));
  if (!within(sampling.repetition_penalty, std::numeric_limits<double>::min(), kUnbounded))
    return invalid(fmt::format("repetition penalty {}: must be above 0", sampling.repetition_penalty));
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id < 0 || id >= vocab_size)
      return invalid(fmt::format("logit_bias: token id {} is outside the vocabulary of {}", id, vocab_size));
    if (!within(bias, -100, 100))
      return invalid(fmt::format("logit_bias of token id {}: {} is not from -100 to 100", id, bias));
  }
  return std::nullopt;
}

}  // namespace

std::int64_t pass_window_pages(const StateLayout& layout, std::int64_t tokens) {
  return pages_for(layout.window()) + pages_for(tokens) + 1;
}

Result<RuntimeOptions> complete_options(const RuntimeOptions& options, const ModelConfig& config) {
  RuntimeOptions plan = options;
  const std::int64_t positions = config.max_positions;
  if (plan.max_context_tokens == 0) plan.max_context_tokens = positions;
  if (plan.max_context_tokens < 1 || plan.max_context_tokens > positions)
    return error("max context {}: the model allows 1 to {} tokens", plan.max_context_tokens, positions);
  if (plan.pool_tokens == 0) plan.pool_tokens = 2 * plan.max_context_tokens;
  if (plan.pool_tokens < plan.max_context_tokens)
    return error("pool of {} tokens: one request may need {} (max context)", plan.pool_tokens, plan.max_context_tokens);
  if (plan.chunk_tokens < 1) return error("chunk of {} tokens: it must be at least 1", plan.chunk_tokens);
  plan.chunk_tokens = std::min(plan.chunk_tokens, plan.max_context_tokens);  // more has no effect
  if (plan.max_running < 1 || plan.max_waiting < 1)
    return error("max running {} and max waiting {}: both must be at least 1", plan.max_running, plan.max_waiting);
  return plan;
}

Result<PlannedPools> make_pools(const RuntimeOptions& plan, const StateLayout& layout) {
  const std::int64_t page_count = pages_for(plan.pool_tokens), window_page_count = planned_window_pages(plan, layout);
  const auto gib = [](std::int64_t count, std::int64_t floats) {
    return static_cast<double>(count) * static_cast<double>(floats) * 4 / (1 << 30);
  };
  const double needed = gib(page_count, layout.page_floats()) + gib(window_page_count, layout.window_page_floats()) +
                        gib(plan.prefix_bytes, 1) / 4;
  const double present = gib(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGE_SIZE)) / 4;
  const auto too_large = [&](const std::string& why) {
    return error(
        "a pool of {} tokens and {} sequences with chunks of {} need {:.1f} GiB: {}; lower --pool-tokens, "
        "--max-running, --chunk-tokens or --max-context",
        plan.pool_tokens, plan.max_running, plan.chunk_tokens, needed, why);
  };
  if (needed > present) return too_large(fmt::format("this machine has {:.1f} GiB", present));
  auto pages = PagePool::make(page_count, layout.page_floats());
  if (!pages) return too_large(pages.error().message);
  auto window_pages = PagePool::make(window_page_count, layout.window_page_floats());
  if (!window_pages) return too_large(window_pages.error().message);
  return PlannedPools{std::move(*pages), std::move(*window_pages)};
}

std::optional<Rejection> refuse_request(const GenerateRequest& request, const RuntimeOptions& plan,
                                        std::int64_t vocab_size) {
  const auto too_long = [](std::string message) { return Rejection{Rejection::Kind::too_long, std::move(message)}; };
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) return invalid("the prompt has no tokens");
  if (request.max_tokens < 0) return invalid("max_tokens is negative");
  for (const std::int32_t id : request.prompt)
    if (id < 0 || id >= vocab_size)
      return invalid(fmt::format("token id {} is outside the vocabulary of {}", id, vocab_size));
  if (auto refused = refuse_sampling(request.sampling, vocab_size)) return refused;
  if (!request.settings.agrees_at_launch(plan.launch))
    return invalid("a switch that is decided at launch has another setting than at launch");
  const std::int64_t limit = plan.max_context_tokens;
  if (prompt > limit || request.max_tokens > limit - prompt)
    return too_long(fmt::format("{} prompt tokens and max_tokens {} exceed the context of {} tokens", prompt,
                                request.max_tokens, limit));
  const std::int64_t most_scored = plan.score_bytes / (vocab_size * 4);
  if (request.prompt_logprobs && prompt > most_scored)
    return too_long(fmt::format("{} prompt tokens are more than can be scored at once: {}", prompt, most_scored));
  return std::nullopt;
}

}  // namespace plumb

#include "faults/check/asker.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include <xxhash.h>

#include "base/check.h"

namespace plumb::faults {
namespace {

// Collects one reply. `on_end` runs on the generator's thread, before `wait` returns.
class Collector final : public TokenSink {
 public:
  explicit Collector(std::function<void()> on_end = {}) : on_end_(std::move(on_end)) {}

  void on_prompt_scores(std::vector<TokenScore> scores) override { reply_.prompt_scores = std::move(scores); }
  void on_token(TokenScore token) override { reply_.tokens.push_back(std::move(token)); }
  void on_finish(Finish reason, Usage usage) override {
    reply_.finish = reason;
    reply_.cached_tokens = usage.cached_tokens;
    if (on_end_) on_end_();
    const std::lock_guard lock(mutex_);
    finished_ = true;
    done_.notify_all();
  }
  Reply wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return finished_; });
    return std::move(reply_);
  }

 private:
  std::function<void()> on_end_;
  Reply reply_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool finished_ = false;
};

}  // namespace

std::uint64_t digest_of(const Reply& reply) {
  std::uint64_t digest = 0;
  for (const TokenScore& token : reply.tokens) {
    const std::pair<std::int32_t, float> said{token.id, token.logprob};
    digest = XXH3_64bits_withSeed(&said, sizeof said, digest);
    digest = XXH3_64bits_withSeed(token.top.data(), token.top.size() * sizeof token.top[0], digest);
  }
  return digest;
}

GenerateRequest Asker::request(std::span<const std::int32_t> prompt, std::int64_t max_tokens,
                               const Settings& settings) const {
  GenerateRequest request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.top_logprobs = static_cast<int>(vocab_size_);
  request.settings = settings;
  return request;
}

GenerateRequest Asker::scoring(std::span<const std::int32_t> text, const Settings& settings) const {
  GenerateRequest scored = request(text, 0, settings);
  scored.top_logprobs = 1;
  scored.prompt_logprobs = true;
  return scored;
}

Reply Asker::ask(GenerateRequest request) {
  const auto sink = std::make_shared<Collector>();
  CHECK(generator_.submit(std::move(request), sink).has_value());
  return sink->wait();
}

std::vector<Reply> Asker::ask_together(std::vector<GenerateRequest> requests) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (std::size_t i = 0; i < requests.size(); ++i) sinks.push_back(std::make_shared<Collector>());
  // The generator's thread itself submits them, between two passes.
  const auto starter = std::make_shared<Collector>([&] {
    for (std::size_t i = 0; i < requests.size(); ++i)
      CHECK(generator_.submit(std::move(requests[i]), sinks[i]).has_value());
  });
  Settings no_trace = requests.front().settings;  // it leaves no prefix behind
  CHECK(no_trace.set("prefix_cache", "off"));
  GenerateRequest first = request(std::vector<std::int32_t>{0}, 0, no_trace);
  CHECK(generator_.submit(std::move(first), starter).has_value());
  starter->wait();
  std::vector<Reply> replies;
  for (const auto& sink : sinks) replies.push_back(sink->wait());
  return replies;
}

}  // namespace plumb::faults

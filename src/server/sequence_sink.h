#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/generator.h"
#include "server/exchange.h"

namespace plumb::server {

/// Who hears what a request's sequences produce; called on the strand of its exchange.
class SequenceListener {
 public:
  virtual ~SequenceListener() = default;
  virtual void on_prompt_scores(std::size_t index, const std::vector<TokenScore>& scores) = 0;
  virtual void on_token(std::size_t index, const TokenScore& token) = 0;
  virtual void on_finish(std::size_t index, Finish reason, Usage usage) = 0;
};

/// Receives sequence `index` on the generator's thread and hands it to the listener on the strand of its exchange.
class SequenceSink final : public TokenSink {
 public:
  SequenceSink(std::shared_ptr<SequenceListener> listener, std::shared_ptr<Exchange> exchange, std::size_t index)
      : listener_(std::move(listener)), exchange_(std::move(exchange)), index_(index) {}

  void on_prompt_scores(std::vector<TokenScore> scores) override {
    post([scores = std::move(scores), i = index_](SequenceListener& to) { to.on_prompt_scores(i, scores); });
  }
  void on_token(TokenScore token) override {
    post([token = std::move(token), i = index_](SequenceListener& to) { to.on_token(i, token); });
  }
  void on_finish(Finish reason, Usage usage) override {
    post([reason, usage, i = index_](SequenceListener& to) { to.on_finish(i, reason, usage); });
  }

  /// From now on nobody hears.
  void detach() {
    // Released outside the lock: this may be the last reference to either.
    std::shared_ptr<SequenceListener> listener;
    std::shared_ptr<Exchange> exchange;
    const std::lock_guard lock(mutex_);
    listener.swap(listener_);
    exchange.swap(exchange_);
  }

 private:
  template <class Task>
  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (listener_ != nullptr)
      exchange_->post([task = std::move(task), listener = listener_]() mutable { task(*listener); });
  }

  std::mutex mutex_;
  std::shared_ptr<SequenceListener> listener_;
  std::shared_ptr<Exchange> exchange_;
  const std::size_t index_;
};

}  // namespace plumb::server

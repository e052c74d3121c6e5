#pragma once

// For tests only.

#include <utility>

#include <gtest/gtest.h>

#include "runtime/solo.h"

namespace plumb {

/// Keeps what it is told, and expects it in the promised order. For a scheduler that is stepped on the test's thread.
class RecordingSink final : public TokenSink {
 public:
  void on_prompt_scores(std::vector<TokenScore> scores) override {
    EXPECT_TRUE(reply.prompt.empty() && reply.tokens.empty() && !finished);
    reply.prompt = std::move(scores);
  }
  void on_token(TokenScore token) override {
    EXPECT_FALSE(finished);
    reply.tokens.push_back(std::move(token));
  }
  void on_finish(Finish reason, Usage usage) override {
    EXPECT_FALSE(finished);
    reply.reason = reason;
    reply.usage = usage;
    finished = true;
  }

  Reply reply;
  bool finished = false;
};

}  // namespace plumb

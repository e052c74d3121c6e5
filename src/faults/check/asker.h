#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "faults/check/questions.h"
#include "runtime/generator.h"

namespace plumb::faults {

/// What a request produced.
struct Reply {
  std::vector<TokenScore> tokens;         // generated, each with the log-probabilities asked for
  std::vector<TokenScore> prompt_scores;  // entry i scores prompt token i + 1
  std::int64_t cached_tokens = 0;
  Finish finish = Finish::failed;

  bool operator==(const Reply& other) const {
    return tokens == other.tokens && prompt_scores == other.prompt_scores && finish == other.finish;
  }
};

/// Of the ids and all log-probabilities of its tokens.
std::uint64_t digest_of(const Reply& reply);

/// Asks a generator and waits.
class Asker {
 public:
  Asker(Generator& generator, std::int64_t vocab_size) : generator_(generator), vocab_size_(vocab_size) {}

  /// Greedy, `max_tokens` tokens, each with the log-probability of every id of the vocabulary.
  GenerateRequest request(std::span<const std::int32_t> prompt, std::int64_t max_tokens,
                          const Settings& settings) const;
  /// Log-probabilities of a text, with the most likely id at each position.
  GenerateRequest scoring(std::span<const std::int32_t> text, const Settings& settings) const;

  Reply ask(GenerateRequest request);
  /// All at once: every request is in the queue before the first pass begins, so that the batches are the same each
  /// time. Replies in the order of the requests.
  std::vector<Reply> ask_together(std::vector<GenerateRequest> requests);

 private:
  Generator& generator_;
  std::int64_t vocab_size_;
};

}  // namespace plumb::faults

#pragma once

// Prompts of exact length on a server whose tokenizer is not at hand: the server's own usage.prompt_tokens counts.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "investigator/history.h"
#include "investigator/probes.h"
#include "investigator/world.h"

namespace plumb::investigator {

/// Requests that only count: a server is asked so many once, and each prompt so many more once.
inline constexpr int kGaugeRequests = 4;
inline constexpr int kDialRequests = 3;
/// The most prompts that one question is asked in.
inline constexpr int kMostRungs = 12;

/// Whether a trial is one question whose value must lie across a boundary in tokens of the server's.
bool needs_dialling(const std::vector<Ask>& asks);

/// `plain` with `words` one-token words before it, as the first line of its first message. Which words follows from the
/// item and the rung, so that the first line is fresh: no prompt begins like another.
Ask rung_of(const Ask& plain, const ItemId& item, int rung, int words, int prompt_tokens);

/// Dials prompts so that the expected value lies across a boundary of the server's prefill, to the token.
///
/// Padding: words that cost one token each, which the server's counts show (kGaugeRequests). The position of the value:
/// the prompt cut before the value counts q tokens, of which the last t are the chat template's end of a message and
/// cannot be told from those at its beginning; 0 <= t <= T, T the tokens of a prompt that are no padding. With a value
/// of V tokens (the prompt cut after it counts q + V) and one token to spare on either side, a boundary B lies inside
/// the value whenever B - V + 2 + t <= q <= B - 2 + t. The same question is therefore asked in
/// R = ceil((T + 1) / (V - 3)) prompts, the rungs: q = B - 2 + i (V - 3), i = 0 … R - 1. Whatever t is, the boundary
/// lies inside the value in one of them. B is the first multiple of the boundary that leaves room for padding.
///
/// Each rung is sent at most once to be answered, never to be counted, so that no prefix of it is in a cache. Its own
/// count must then be the one foretold (StepRecord::expected_tokens), to the token; else it is not covered. For use
/// from several threads; one dials at a time.
class Dialler {
 public:
  Dialler(const Shape& shape, int answer_tokens) : shape_(shape), answer_tokens_(answer_tokens) {}

  struct Dialled {
    std::vector<Ask> asks;  // the rungs; empty when refused
    int requests = 0;       // sent for it
    int tokens = 0;         // of these
    std::string refused{};  // why not: the server does not count, not alike, or the prompt would be too long
  };
  /// The rungs of a question that needs_dialling(); found once an item, and the same for every launch from then on.
  Dialled dial(World& world, const ItemId& item, const Ask& ask, double deadline_s);

  /// Takes over what was found before a case was interrupted.
  void learn(const History& history);

 private:
  struct Gauge {
    int overhead = 0;       // T
    std::string refused{};  // why the server's counts are of no use
  };
  struct Rung {
    int words = 0;
    int prompt_tokens = 0;
  };
  // nullopt: no reply came, which says nothing about the server's counts.
  std::optional<int> count(World& world, Ask ask, double deadline_s, Dialled& sent, std::string& refused) const;
  Result<Gauge> gauge(World& world, double deadline_s, Dialled& sent) const;
  Result<std::vector<Rung>> rungs(World& world, const ItemId& item, const Ask& ask, double deadline_s,
                                  Dialled& sent) const;

  Shape shape_;
  int answer_tokens_;
  std::mutex mutex_;
  std::optional<Gauge> gauge_;
  std::map<std::pair<std::string, std::uint64_t>, std::vector<Rung>> found_;  // by cell and seed
};

}  // namespace plumb::investigator

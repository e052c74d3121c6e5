#include "investigator/dial.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace plumb::investigator {
namespace {

// One token each, with the space before them, wherever whole words are in the vocabulary.
constexpr std::array<std::string_view, 16> kWords{" and",  " the", " of", " to", " in", " is",   " that", " for",
                                                  " with", " on",  " as", " by", " at", " from", " or",   " one"};
constexpr int kBaseWords = 8;  // before a prompt that is only counted
constexpr int kGaugeWords = 16;
constexpr int kManyWords = 48;
constexpr int kSpare = 1;  // tokens between the end of a value and the boundary, at least

std::string first_line(std::uint64_t seed, int words) {
  Rng rng(seed);
  std::string line = "Words:";
  for (int i = 0; i < words; ++i) line += kWords[static_cast<std::size_t>(rng.below(kWords.size()))];
  return line + ".\n\n";
}

Ask padded(Ask ask, std::uint64_t seed, int words) {
  CHECK(!ask.messages.empty());
  ask.messages.front().content.insert(0, first_line(seed, words));
  ask.padding = words;
  return ask;
}

std::uint64_t seed_of(const ItemId& item, int rung) {
  return derive_seed(item.seed, fmt::format("{}/rung/{}", item.cell, rung));
}

// The prompt up to the value, without the space before it, or up to its end.
Ask cut_at_value(Ask ask, bool after) {
  for (std::size_t m = 0; m < ask.messages.size(); ++m) {
    std::string& text = ask.messages[m].content;
    std::size_t at = text.find(ask.expected);
    if (at == std::string::npos) continue;
    if (after)
      at += ask.expected.size();
    else
      while (at > 0 && text[at - 1] == ' ') --at;
    text.resize(at);
    ask.messages.resize(m + 1);
    return ask;
  }
  CHECK(false);  // needs_dialling() looked for it
  return ask;
}

Ask gauge_ask(int words) {
  Ask ask;
  ask.messages = {{"user", first_line(derive_seed(0, "gauge"), words)}};
  return ask;
}

}  // namespace

bool needs_dialling(const std::vector<Ask>& asks) {
  if (asks.size() != 1 || asks[0].boundary <= 0 || asks[0].expected.empty()) return false;
  return std::any_of(asks[0].messages.begin(), asks[0].messages.end(),
                     [&](const Message& m) { return m.content.find(asks[0].expected) != std::string::npos; });
}

Ask rung_of(const Ask& plain, const ItemId& item, int rung, int words, int prompt_tokens) {
  Ask ask = padded(plain, seed_of(item, rung), words);
  ask.step = fmt::format("rung {}", rung);
  ask.prompt_tokens = prompt_tokens;
  return ask;
}

std::optional<int> Dialler::count(World& world, Ask ask, double deadline_s, Dialled& sent, std::string& refused) const {
  ask.max_tokens = 1;
  ask.ignore_eos = false;
  const Reply reply = world.ask(ask, std::clamp(deadline_s - world.now_s(), kLeastAskTimeoutS, kAskTimeoutS));
  ++sent.requests;
  sent.tokens += reply.prompt_tokens.value_or(ask.prompt_tokens);
  if (reply.kind == Reply::Kind::infrastructure) return std::nullopt;
  if (reply.kind == Reply::Kind::rejected)
    refused = fmt::format("a request that only counts tokens is refused ({})", reply.text);
  else if (!reply.prompt_tokens)
    refused = "the server does not say how many tokens a prompt has (usage.prompt_tokens)";
  return refused.empty() ? reply.prompt_tokens : std::optional(0);
}

Result<Dialler::Gauge> Dialler::gauge(World& world, double deadline_s, Dialled& sent) const {
  std::array<int, kGaugeRequests> counts{};
  constexpr std::array<int, kGaugeRequests> kAsked{kGaugeWords, kGaugeWords + 1, kManyWords, kGaugeWords};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::string refused;
    const auto tokens = count(world, gauge_ask(kAsked[i]), deadline_s, sent, refused);
    if (!tokens) return error("a request that only counts tokens got no reply");
    if (!refused.empty()) return Gauge{.overhead = 0, .refused = refused};
    counts[i] = *tokens;
  }
  Gauge g{.overhead = counts[0] - kGaugeWords};
  if (counts[3] != counts[0])
    g.refused = fmt::format("the server counts the same prompt as {} and as {} tokens", counts[0], counts[3]);
  else if (counts[1] - counts[0] != 1 || counts[2] - counts[0] != kManyWords - kGaugeWords || g.overhead < 0)
    g.refused = fmt::format("{} common words more cost {} tokens and 1 more costs {}: its tokenizer spells them",
                            kManyWords - kGaugeWords, counts[2] - counts[0], counts[1] - counts[0]);
  return g;
}

Result<std::vector<Dialler::Rung>> Dialler::rungs(World& world, const ItemId& item, const Ask& ask, double deadline_s,
                                                  Dialled& sent) const {
  std::array<int, kDialRequests> counts{};
  const std::array<Ask, kDialRequests> asked{cut_at_value(ask, false), cut_at_value(ask, true), ask};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::string refused;
    // Rungs begin with 1.
    const Ask with_words = padded(asked[i], seed_of(item, -static_cast<int>(i)), kBaseWords);
    const auto tokens = count(world, with_words, deadline_s, sent, refused);
    if (!tokens) return error("a request that only counts tokens got no reply");
    if (!refused.empty()) return error("{}", refused);
    counts[i] = *tokens;
  }
  const auto [before, after, whole] = counts;
  if (before >= after || after > whole)
    return error("the server counts {}, {} and {} tokens for a prompt that grows", before, after, whole);
  const int step = after - before - 2 * kSpare - 1;
  const int count = step <= 0 ? kMostRungs + 1 : gauge_->overhead / step + 1;  // ceil((T + 1) / step)
  if (count > kMostRungs)
    return error("up to {} tokens of the chat template may follow a message; {} prompts cover {}", gauge_->overhead,
                 kMostRungs, std::max(0, kMostRungs * step - 1));
  int boundary = ask.boundary;
  while (boundary - 1 - kSpare < before) boundary += ask.boundary;
  std::vector<Rung> list;
  for (int i = 0; i < count; ++i) {
    const int more = boundary - 1 - kSpare + i * step - before;
    list.push_back({kBaseWords + more, whole + more});
  }
  const int longest = list.back().prompt_tokens + std::max(ask.max_tokens, answer_tokens_);
  const int most = shape_.max_len > 0 ? shape_.max_len : kMaxPromptTokens;
  if (longest > most) return error("the prompt would need {} tokens, {} are the most", longest, most);
  return list;
}

Dialler::Dialled Dialler::dial(World& world, const ItemId& item, const Ask& ask, double deadline_s) {
  const std::lock_guard lock(mutex_);
  Dialled dialled;
  auto known = found_.find({item.cell, item.seed});
  if (known == found_.end()) {
    if (!gauge_) {
      const auto measured = gauge(world, deadline_s, dialled);
      if (!measured) {
        dialled.refused = measured.error().message;
        return dialled;
      }
      gauge_ = *measured;
    }
    if (!gauge_->refused.empty()) {
      dialled.refused = gauge_->refused;
      return dialled;
    }
    auto list = rungs(world, item, ask, deadline_s, dialled);
    if (!list) {
      dialled.refused = list.error().message;
      return dialled;
    }
    known = found_.emplace(std::pair(item.cell, item.seed), std::move(*list)).first;
  }
  for (const Rung& r : known->second)
    dialled.asks.push_back(rung_of(ask, item, static_cast<int>(dialled.asks.size()) + 1, r.words, r.prompt_tokens));
  return dialled;
}

void Dialler::learn(const History& history) {
  const std::lock_guard lock(mutex_);
  for (const LaunchRecord& l : history.launches)
    for (const TrialRecord& t : l.trials) {
      // One that was cut short may lack rungs.
      if (t.grade == Grade::infrastructure || t.steps.empty() || t.steps.front().padding == 0) continue;
      std::vector<Rung> list;
      for (const StepRecord& s : t.steps) list.push_back({s.padding, s.expected_tokens});
      found_.emplace(std::pair(t.item.cell, t.item.seed), std::move(list));
    }
}

}  // namespace plumb::investigator

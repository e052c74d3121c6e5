#include "investigator/trial.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "investigator/dial.h"
#include "investigator/report_redaction.h"

namespace plumb::investigator {
namespace {

std::string prompt_text(const Ask& ask) {
  if (ask.messages.empty()) return ask.prompt;
  std::string text;
  for (const Message& m : ask.messages) text += m.role + "\n" + m.content + "\n" + m.more;
  return text;
}

std::string score_text(const ScoreAsk& ask) {
  Ask as_ask;
  as_ask.prompt = ask.prompt;
  as_ask.messages = ask.messages;
  return prompt_text(as_ask);
}

// With more room to think: the budget doubled where there is one, else without thinking, by the names that chat
// templates use for it.
Ask with_more_room(Ask ask, const RequestSpec& request, std::string& how) {
  if (request.thinking_tokens > 0) {
    how = "thinking budget doubled";
    ask.max_tokens = std::max(ask.max_tokens, request.answer_tokens + 2 * request.thinking_tokens);
  } else {
    how = "thinking off";
    ask.body = merge_bodies({ask.body, R"({"chat_template_kwargs": {"thinking": false, "enable_thinking": false}})"});
  }
  return ask;
}

StepRecord ask_one(World& world, const Ask& ask, double deadline_s, const KnownCodes* codes) {
  const Reply reply = world.ask(ask, std::clamp(deadline_s - world.now_s(), kLeastAskTimeoutS, kAskTimeoutS));
  StepRecord s;
  s.step = ask.step;
  s.prompt_hash = hash_text(prompt_text(ask));
  s.expected = ask.expected;
  s.text = reply.text;
  s.finish_reason = reply.finish_reason;
  s.graded = !ask.expected.empty();
  s.wants_hit = ask.wants_hit;
  s.prompt_tokens = reply.prompt_tokens;
  s.expected_tokens = ask.prompt_tokens;
  s.padding = ask.padding;
  s.cached_tokens = reply.cached_tokens;
  s.seconds = reply.seconds;
  if (s.graded) {
    const Graded graded = grade_reply(reply, ask);
    s.grade = graded.grade;
    s.detail = graded.detail;
    if (s.detail == "unknown code" && codes != nullptr)
      for (const std::string& code : code_strings(reply.text))
        if (codes->contains(code)) s.detail = "another request's code";
  } else if (reply.kind == Reply::Kind::answered) {
    s.grade = Grade::right;
    if (is_denial(reply.text)) s.detail = kDenies;  // shown, not graded
  } else {
    // A primer or weak check that got no text: nothing to grade, so it is unresolved, whatever the reason.
    s.grade = Grade::infrastructure;
    s.detail = reply.text;
  }
  return s;
}

// Once more with more room to think; both are recorded, the second counts. A server that refuses the change of the
// request leaves the first as it is.
void ask_again(World& world, const Ask& ask, double deadline_s, const TrialExtras& extras,
               std::vector<StepRecord>& steps) {
  std::string how;
  StepRecord again = ask_one(world, with_more_room(ask, extras.request, how), deadline_s, extras.codes);
  if (again.grade == Grade::refused) return;
  again.room = how;
  steps.back().superseded = true;
  steps.back().graded = false;
  steps.push_back(std::move(again));
}

}  // namespace

void KnownCodes::add(const std::vector<Ask>& asks) {
  const std::lock_guard lock(mutex_);
  for (const Ask& ask : asks)
    for (const Fact& f : ask.facts) codes_.insert(f.value);
}

bool KnownCodes::contains(const std::string& code) const {
  const std::lock_guard lock(mutex_);
  return codes_.contains(code);
}

std::string hash_text(std::string_view text) {
  const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

TrialRecord run_trial(World& world, const ItemId& id, Wording wording, const Shape& shape, double deadline_s,
                      const TrialExtras& extras) {
  TrialRecord t;
  t.item = id;
  t.wording = wording;
  std::vector<Ask> asks = make_item(id, wording, shape).asks;
  Dialler::Dialled dialled;
  if (extras.dialler != nullptr && needs_dialling(asks)) {
    dialled = extras.dialler->dial(world, id, asks.front(), deadline_s);
    if (!dialled.asks.empty()) asks = dialled.asks;
  }
  if (extras.codes != nullptr) extras.codes->add(asks);
  for (const Ask& ask : asks) {
    t.steps.push_back(ask_one(world, ask, deadline_s, extras.codes));
    if (t.steps.size() == 1) {
      t.steps[0].dial_requests = dialled.requests;
      t.steps[0].dial_tokens = dialled.tokens;
      t.steps[0].undialled = dialled.refused;
    }
    if (t.steps.back().detail == kLengthInReasoning) ask_again(world, ask, deadline_s, extras, t.steps);
    if (t.steps.back().grade == Grade::infrastructure) break;
  }
  t.grade = worst_grade(t.steps);
  return t;
}

std::optional<std::vector<Ask>> asks_of(const TrialRecord& trial, const Shape& shape) {
  const std::vector<Ask> made = make_item(trial.item, trial.wording, shape).asks;
  const bool dialled = needs_dialling(made) && !trial.steps.empty() && trial.steps.front().padding > 0;
  std::vector<Ask> asks;
  std::size_t next = 0;
  for (const StepRecord& s : trial.steps) {
    if (!s.room.empty() && asks.empty()) return std::nullopt;
    if (!s.room.empty()) {
      asks.push_back(asks.back());
      continue;
    }
    if (!dialled && next >= made.size()) return std::nullopt;
    ++next;
    asks.push_back(dialled ? rung_of(made.front(), trial.item, static_cast<int>(next), s.padding, s.expected_tokens)
                           : made[next - 1]);
  }
  return asks;
}

std::optional<std::string> why_lengths_differ(const std::vector<TrialRecord>& trials, std::string_view cell) {
  for (const TrialRecord& t : trials)
    if (t.item.cell == cell)
      for (const StepRecord& s : t.steps) {
        // A request without a reply comes without numbers too, which says nothing about those of the server.
        if (s.grade == Grade::infrastructure) continue;
        std::string why = s.undialled;
        if (why.empty() && !s.prompt_tokens && s.graded) why = "the server does not say how long they are";
        if (why.empty() && s.prompt_tokens && *s.prompt_tokens != s.expected_tokens)
          why = fmt::format("{} tokens by the server's count where {} were foretold", *s.prompt_tokens,
                            s.expected_tokens);
        if (!why.empty()) return fmt::format("{}: partly, its prompts are not as long as meant: {}", cell, why);
      }
  return std::nullopt;
}

ScoreRecord run_score(World& world, const ScoreItem& item, std::uint64_t seed, Wording wording, const Scores* refused,
                      double deadline_s) {
  const ScoreAsk ask = make_score_ask(item, seed, wording);
  ScoreRecord r{.item = item, .wording = wording, .prompt_hash = hash_text(score_text(ask))};
  r.expected_tokens = ask.prompt_tokens;
  if (refused != nullptr)
    r.scores = {.status = refused->status, .message = refused->message};
  else
    r.scores = world.score(ask, std::clamp(deadline_s - world.now_s(), kLeastAskTimeoutS, kAskTimeoutS));
  return r;
}

std::optional<std::string> damage_of_scores(const History& history, std::uint64_t seed) {
  for (const LaunchRecord& l : history.launches)
    for (const ScoreRecord& r : l.scores)
      if (r.prompt_hash != hash_text(score_text(make_score_ask(r.item, seed, r.wording))))
        return fmt::format("launch {}: its scored text {} is not the one that plumb asks there", l.id, name_of(r.item));
  return std::nullopt;
}

std::optional<std::string> damage_of_trials(const History& history, const Shape& shape) {
  for (const LaunchRecord& l : history.launches)
    for (const TrialRecord& t : l.trials) {
      const auto asks = asks_of(t, shape);
      bool same = asks.has_value();
      for (std::size_t i = 0; same && i < t.steps.size(); ++i) {
        const StepRecord& s = t.steps[i];
        const bool claims = s.graded && s.grade == Grade::right;
        same = s.step == (*asks)[i].step && s.expected == (*asks)[i].expected &&
               s.prompt_hash == hash_text(prompt_text((*asks)[i])) &&
               s.graded == (!(*asks)[i].expected.empty() && !s.superseded) &&
               (!claims || is_withheld(s.text) || s.text.find(s.expected) != std::string::npos);
      }
      if (!same)
        return fmt::format("launch {}: its trial {} with seed {} is no answer to what plumb asks there", l.id,
                           t.item.cell, t.item.seed);
    }
  return std::nullopt;
}

}  // namespace plumb::investigator

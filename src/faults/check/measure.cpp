#include "faults/check/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/local_sequence.h"
#include "faults/check/asker.h"
#include "faults/check/questions.h"
#include "faults/check/trials.h"
#include "runtime/runtime.h"
#include "runtime/sampler.h"
#include "server/chat_render.h"

namespace plumb::faults {
namespace {

constexpr std::uint64_t kSeed = 20261130;  // of every conversation here; a change means to record all signatures anew
constexpr std::int64_t kContext = 2048;    // of the pool too, so that the needles evict what was stored before them
constexpr std::int64_t kFar = 288;         // tokens behind a fact: out of the window, and more index rows than are kept
constexpr std::int64_t kNear = 96;         // out of the window only
constexpr int kShort = 6;
constexpr int kConversations = 4, kRounds = 4;  // turns
constexpr int kFulls = 3, kForks = 6, kEvicted = 6, kExtensions = 8;
constexpr int kRepeats = 4;
constexpr std::int64_t kDecoded = 16;
constexpr int kAlone = 1, kTogether = 6;                  // sequences at a time
constexpr std::size_t kShortGroups = 2, kLongGroups = 1;  // of tasks, at the first two lengths
constexpr int kTexts = 4, kPassages = 16;
constexpr std::array<std::int64_t, 6> kCuts{151, 203, 254, 301, 357, 398};
constexpr float kLeastLogprob = -30;  // what an answer without a finite probability counts as

// A boundary (prefill chunk and page at once, or the window's edge) and how many tokens of the value lie before it.
// A boundary (prefill chunk and page at once, or the window's edge), how many tokens of the value lie before it, and
// how many tokens after the value's first the prompt ends: the last of them sees the window's 64 positions, itself
// included.
struct Boundary {
  std::int64_t at, before, distance;
};
constexpr std::array<Boundary, 8> kBoundaries{Boundary{128, 1, kFar}, {128, 3, kFar + 1}, {128, 4, kFar + 2},
                                              {128, 5, kFar + 3},     {256, 2, kFar},     {256, 4, kFar + 5},
                                              {128, 4, 64},           {160, 3, 67}};

std::uint64_t seed_of(const char* probe, int number) {
  return mix64(derive_seed(kSeed, probe) + static_cast<std::uint64_t>(number));
}

class Probes {
 public:
  Probes(const Subject& subject, const Variant& variant)
      : subject_(subject),
        variant_(variant),
        settings_(variant.probes),
        generator_(make(kAlone)),
        asker_(*generator_, vocab()) {}

  Sightings run() {
    std::vector<Reply> shorts, cold;
    for (int i = 0; i < kShort; ++i) shorts.push_back(ask_graded(short_question(i), seen_.near));
    for (int i = 0; i < static_cast<int>(kBoundaries.size()); ++i)
      cold.push_back(ask_graded(boundary_question(i, false), seen_.boundary));
    for (int i = 0; i < kFulls; ++i) hit(boundary_question(i, false), cold[static_cast<std::size_t>(i)]);
    for (int i = 0; i < kForks; ++i) hit(boundary_question(i, true), ask_uncached(boundary_question(i, true)));
    for (int i = 0; i < kExtensions; ++i) extend(i);
    for (int i = 0; i < 3; ++i) ask_graded(needle_question(i, 512), seen_.needle);
    for (int i = 3; i < 5; ++i) ask_graded(needle_question(i, 1024), seen_.needle);
    // The needles took every page, so that what was stored of these prompts is gone.
    for (int i = 0; i < kEvicted; ++i) hit(boundary_question(i, false), cold[static_cast<std::size_t>(i)]);
    for (int i = 0; i < kConversations; ++i) turns(i);
    for (int i = 0; i < 3; ++i) decode(i);
    seen_.repeats = repeats();
    crowd(shorts, cold);
    for (const auto& [length, groups] : {std::pair{std::size_t{0}, kShortGroups}, {std::size_t{1}, kLongGroups}})
      for (std::size_t group = 0; group < groups; ++group) exacting(subject_.tasks[length].of_group(group));
    return std::move(seen_);
  }

  std::vector<std::uint64_t> repeats() {
    Settings uncached = settings_;
    CHECK(uncached.set("prefix_cache", "off"));
    Dialogue c(*subject_.encoding, seed_of("repeat", 0));
    const Fact fact = c.new_fact();
    c.state(fact);
    c.fill(kFar);
    const Question question = c.ask(fact);
    std::vector<std::uint64_t> digests;
    for (int i = 0; i < kRepeats; ++i) digests.push_back(digest_of(asker_.ask(request(question, uncached))));
    return digests;
  }

 private:
  std::int64_t vocab() const { return subject_.model->config.vocab_size; }

  std::unique_ptr<Generator> make(int max_running) const {
    RuntimeOptions options;
    options.backend = kMeasuredBackend;
    options.launch = settings_;
    options.max_context_tokens = kContext;
    options.pool_tokens = max_running == kAlone ? kContext : 2 * kContext;
    options.max_running = max_running;
    variant_.plant();
    auto generator = make_generator(subject_.model, std::make_shared<InlineExecutor>(), options);
    CHECK(generator.has_value());
    return std::move(*generator);
  }

  // Through the chat form, as a client asks.
  GenerateRequest request(const Question& question, const Settings& settings) {
    const auto chat = subject_.encoding->lay_out(question.chat);
    CHECK(chat.has_value());
    const auto rendered =
        chosen_side<"chat.incremental_render">(settings, server::RenderStep{chat->get(), &rendered_chats_});
    return asker_.request(rendered.ids, static_cast<std::int64_t>(question.answer.size()), settings);
  }

  static Answer graded(const Question& question, const Reply& reply) {
    Answer answer{.right = true, .logprobs = {}};
    for (std::size_t i = 0; i < question.answer.size() && answer.right; ++i) {
      const std::int32_t expected = question.answer[i];
      float logprob = kLeastLogprob;
      answer.right = i < reply.tokens.size() && reply.tokens[i].id == expected;
      if (i < reply.tokens.size())
        for (const auto& [id, value] : reply.tokens[i].top)
          if (id == expected && value > kLeastLogprob) logprob = value;
      answer.logprobs.push_back(logprob);
    }
    return answer;
  }

  Reply ask_graded(const Question& question, std::vector<Answer>& answers) {
    Reply reply = asker_.ask(request(question, settings_));
    answers.push_back(graded(question, reply));
    seen_.replies.push_back(digest_of(reply));
    return reply;
  }

  Reply ask_uncached(const Question& question) {
    Settings uncached = settings_;
    CHECK(uncached.set("prefix_cache", "off"));
    return asker_.ask(request(question, uncached));
  }

  void hit(const Question& question, const Reply& cold) {
    const Reply reply = ask_graded(question, seen_.hits_answered);
    seen_.hit_tokens += reply.cached_tokens;
    seen_.hit.differing += reply != cold;
    ++seen_.hit.of;
  }

  Question short_question(int number) const {
    Dialogue c(*subject_.encoding, seed_of("short", number));
    const Fact fact = c.new_fact();
    c.state(fact);
    return c.ask(fact);
  }

  // `fork`: the same conversation with another value from its fourth character on.
  Question boundary_question(int number, bool fork) const {
    const Boundary& b = kBoundaries[static_cast<std::size_t>(number)];
    Dialogue c(*subject_.encoding, seed_of("boundary", number));
    Fact fact = c.new_fact();
    if (fork) fact = diverging(fact, 3);
    c.state_at(fact, b.at - b.before);
    return c.ask_at(fact, b.at - b.before + b.distance);
  }

  Question needle_question(int number, std::int64_t length) const {
    Dialogue c(*subject_.encoding, seed_of("needle", number));
    Rng depth(seed_of("needle depth", number));
    const std::int64_t part = 128;
    std::vector<Fact> facts;
    for (std::int64_t begin = 0; begin + part < length - kFar / 2; begin += part) {
      const auto before = static_cast<std::int64_t>(Dialogue::kMinFill + depth.below(48));
      c.fill(before);
      facts.push_back(c.new_fact());
      c.state(facts.back());
      if (const std::int64_t left = begin + part - c.tokens(); left >= Dialogue::kMinFill) c.fill(left);
    }
    constexpr std::int64_t kQuestionTokens = 64;
    if (const std::int64_t left = length - c.tokens() - kQuestionTokens; left >= Dialogue::kMinFill) c.fill(left);
    return c.ask_at(facts[static_cast<std::size_t>(depth.below(facts.size()))], length);
  }

  void extend(int number) {
    Dialogue c(*subject_.encoding, seed_of("extend", number));
    const Fact fact = c.new_fact();
    c.fill(90 + 7 * number);  // some end in another page than they began
    asker_.ask(asker_.request(c.state_in_two(fact, 1 + static_cast<std::size_t>(number) % 3), 1, settings_));
    c.fill(number % 2 == 0 ? kNear : kFar);
    const Question question = c.ask(fact);
    hit(question, ask_uncached(question));
  }

  void turns(int number) {
    Dialogue c(*subject_.encoding, seed_of("turns", number));
    Rng choice(seed_of("turns choice", number));
    std::vector<Fact> facts;
    c.fill(static_cast<std::int64_t>(12 + choice.below(28)));
    for (int round = 0; round < kRounds; ++round) {
      // The statement follows the last answer directly: what a server keeps of the end of a request is used here.
      for (std::uint64_t left = 1 + choice.below(2); left > 0; --left) {
        facts.push_back(c.new_fact());
        c.state(facts.back());
      }
      c.fill(static_cast<std::int64_t>(72 + choice.below(16)));
      const bool newest = choice.below(2) == 0;
      const std::size_t asked = newest ? facts.size() - 1 : static_cast<std::size_t>(choice.below(facts.size()));
      ask_graded(c.ask(facts[asked]), seen_.turns);
      c.answer();
    }
  }

  // What was decoded token by token is scored again in one forward pass.
  void decode(int number) {
    Dialogue c(*subject_.encoding, seed_of("decode", number));
    const Fact fact = c.new_fact();
    c.state(fact);
    c.fill(100 + 130 * number);
    const Question question = c.ask(fact);
    const Reply decoded = asker_.ask(asker_.request(question.prompt, kDecoded, settings_));
    std::vector<std::int32_t> text = question.prompt;
    for (const TokenScore& token : decoded.tokens) text.push_back(token.id);
    Settings one_shot = settings_;
    CHECK(one_shot.set("prefill.chunked", "off"));
    const Reply scored = asker_.ask(asker_.scoring(text, one_shot));
    bool equal = scored.prompt_scores.size() + 1 == text.size();
    for (std::size_t i = 0; equal && i < decoded.tokens.size(); ++i)
      equal = scored.prompt_scores[question.prompt.size() - 1 + i].logprob == decoded.tokens[i].logprob;
    seen_.decode.differing += !equal;
    ++seen_.decode.of;
  }

  // Requests of unequal lengths, the long ones twice, six at a time; each must be answered as it was alone.
  void crowd(const std::vector<Reply>& shorts, const std::vector<Reply>& cold) {
    const auto generator = make(kTogether);
    Asker asker(*generator, vocab());
    struct Member {
      Question question;
      const Reply* alone;
    };
    std::vector<Member> members;
    for (std::size_t i = 0; i < kBoundaries.size(); ++i) {
      members.push_back({boundary_question(static_cast<int>(i), false), &cold[i]});
      members.push_back(members.back());
      if (i < shorts.size()) members.push_back({short_question(static_cast<int>(i)), &shorts[i]});
    }
    std::vector<GenerateRequest> requests;
    for (const Member& member : members) requests.push_back(request(member.question, settings_));
    const std::vector<Reply> replies = asker.ask_together(std::move(requests));
    for (std::size_t i = 0; i < members.size(); ++i) {
      seen_.crowd_answered.push_back(graded(members[i].question, replies[i]));
      seen_.replies.push_back(digest_of(replies[i]));
      seen_.crowd.differing += replies[i] != *members[i].alone;
      ++seen_.crowd.of;
    }
  }

  void exacting(std::span<const TaskConversation> conversations) {
    const std::vector<Trial> trials = ask_group(subject_, variant_, conversations, false);
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const std::vector<Question>& questions = conversations[i].questions;
      for (std::size_t r = 0; r < trials[i].replies.size(); ++r) {
        const TaskReply& reply = trials[i].replies[r];
        seen_.exacting.push_back(graded_answer(questions[std::min(r, questions.size() - 1)], reply));
        seen_.replies.push_back(reply.digest);
      }
    }
  }

  const Subject& subject_;
  const Variant& variant_;
  Settings settings_;
  std::unique_ptr<Generator> generator_;
  Asker asker_;
  server::RenderedChats rendered_chats_;
  Sightings seen_;
};

std::vector<std::int32_t> fixed_text(const Encoding& encoding, int number) {
  Dialogue c(encoding, seed_of("text", number));
  std::vector<Fact> facts;
  Rng choice(seed_of("text choice", number));
  while (c.tokens() < kCuts.back() + 2) {
    facts.push_back(c.new_fact());
    c.state(facts.back());
    c.fill(static_cast<std::int64_t>(20 + choice.below(40)));
    c.ask(facts[static_cast<std::size_t>(choice.below(facts.size()))]);
    c.answer();
  }
  return {c.ids().begin(), c.ids().begin() + kCuts.back() + 2};
}

std::vector<std::int32_t> passage(const Encoding& encoding, int number) {
  Rng rng(seed_of("passage", number));
  std::vector<std::int32_t> ids{encoding.bos()};
  while (ids.size() < 32u + 2u * static_cast<unsigned>(number)) {
    const auto id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(encoding.vocab_size())));
    if (!encoding.is_special(id) && !encoding.token_bytes(id).empty()) ids.push_back(id);
  }
  return ids;
}

// Log-probabilities of the text's own tokens from kDecodeFrom on, each after a pass over the token before it alone.
std::vector<float> forced_decode(const Subject& subject, const Settings& settings,
                                 const std::vector<std::int32_t>& text) {
  Engine engine(subject.model, std::make_shared<InlineExecutor>(), kMeasuredBackend, settings);
  LocalSequence sequence(engine.layout());
  SequenceState& state = sequence.reserve(static_cast<std::int64_t>(text.size()));
  std::vector<float> logits(static_cast<std::size_t>(subject.model->config.vocab_size)), logprobs;
  const auto last = static_cast<std::int64_t>(text.size()) - 1;
  while (state.length < last) {
    const std::int64_t count = state.length == 0 ? kDecodeFrom : 1;
    const auto tokens =
        std::span(text).subspan(static_cast<std::size_t>(state.length), static_cast<std::size_t>(count));
    const std::vector<BatchSequence> batch{{&state, tokens, false, nullptr}};
    engine.forward({batch, &settings}, View<float, 2>(logits.data(), {1, subject.model->config.vocab_size}));
    logprobs.push_back(score_token(logits, text[static_cast<std::size_t>(state.length)], 0, settings).logprob);
  }
  return logprobs;
}

void measure_texts(const Subject& subject, const Variant& variant, Sightings& seen) {
  const Settings& settings = variant.texts;
  variant.plant();
  RuntimeOptions options;
  options.backend = kMeasuredBackend;
  options.launch = settings;
  options.max_context_tokens = kContext;
  auto generator = make_generator(subject.model, std::make_shared<InlineExecutor>(), options);
  CHECK(generator.has_value());
  Asker asker(**generator, subject.model->config.vocab_size);
  const bool hits = settings.on(switch_index("prefix_cache"));
  for (int i = 0; i < kTexts; ++i) {
    const auto text = fixed_text(*subject.encoding, i);
    std::vector<float> scores, after_hits;
    for (const TokenScore& score : asker.ask(asker.scoring(text, settings)).prompt_scores)
      scores.push_back(score.logprob);
    // Without the cache these would be computed from their first token: the scores again.
    for (const std::int64_t cut : kCuts) {
      if (!hits) break;
      const auto prompt = std::span(text).first(static_cast<std::size_t>(cut));
      const Reply reply = asker.ask(asker.request(prompt, 1, settings));
      float logprob = kLeastLogprob;
      for (const TokenScore& token : reply.tokens)
        for (const auto& [id, value] : token.top)
          if (id == text[static_cast<std::size_t>(cut)]) logprob = value;
      after_hits.push_back(logprob);
    }
    seen.scores.push_back(std::move(scores));
    seen.hits.push_back(std::move(after_hits));
    seen.decoded.push_back(forced_decode(subject, settings, text));
  }
  for (int i = 0; i < kPassages; ++i) {
    std::vector<std::int32_t> likeliest;
    for (const TokenScore& score : asker.ask(asker.scoring(passage(*subject.encoding, i), settings)).prompt_scores)
      likeliest.push_back(score.top.front().first);
    seen.likeliest.push_back(std::move(likeliest));
  }
}

}  // namespace

Result<Subject> load_subject(const std::string& folder, const std::filesystem::path& questions) {
  auto model = load_model(folder);
  if (!model) return tl::unexpected(model.error());
  auto encoding = load_encoding(folder, model->config);
  if (!encoding) return tl::unexpected(encoding.error());
  auto tasks = read_task_questions(questions, **encoding);
  if (!tasks) return tl::unexpected(tasks.error());
  if (tasks->size() < 2 || tasks->front().groups() < kShortGroups || (*tasks)[1].groups() < kLongGroups)
    return error("{}: too few conversations; phantom/write_questions.py writes enough", questions.string());
  return Subject{std::make_shared<const Model>(std::move(*model)), std::move(*encoding), std::move(*tasks)};
}

Sightings measure(const Subject& subject, const Variant& variant) {
  Sightings seen = Probes(subject, variant).run();
  measure_texts(subject, variant, seen);
  variant.plant();
  seen.trace = trace_digests(subject.model, fixed_text(*subject.encoding, 0), variant.probes, kMeasuredBackend);
  return seen;
}

std::vector<std::uint64_t> measure_repeats(const Subject& subject, const Variant& variant) {
  return Probes(subject, variant).repeats();
}

std::vector<std::int64_t> text_cuts() { return {kCuts.begin(), kCuts.end()}; }

}  // namespace plumb::faults

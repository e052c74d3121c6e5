#include "faults/check/trials.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "faults/check/asker.h"
#include "runtime/runtime.h"
#include "server/chat_render.h"

namespace plumb::faults {
namespace {

constexpr int kRunning = 5;                  // at a time, of the eight of a group
constexpr std::int64_t kContextsInPool = 6;  // longest ones
constexpr float kLeastLogprob = -30;         // of an id that the reply does not list, or not with a finite one

class Server {
 public:
  Server(const Subject& subject, const Variant& variant, std::span<const TaskConversation> conversations)
      : subject_(subject), settings_(variant.probes) {
    RuntimeOptions options;
    options.backend = kMeasuredBackend;
    options.launch = settings_;
    options.max_running = kRunning;
    for (const TaskConversation& c : conversations)
      for (const Question& question : c.questions)
        options.max_context_tokens = std::max(
            options.max_context_tokens, static_cast<std::int64_t>(question.prompt.size()) + most_tokens(question));
    options.pool_tokens = kContextsInPool * options.max_context_tokens;
    variant.plant();
    auto generator = make_generator(subject.model, std::make_shared<InlineExecutor>(), options);
    CHECK(generator.has_value());
    generator_ = std::move(*generator);
    asker_ = std::make_unique<Asker>(*generator_, vocab());
  }

  std::vector<Reply> ask(const std::vector<const Question*>& questions) {
    std::vector<GenerateRequest> requests;
    for (const Question* question : questions) requests.push_back(request(*question));
    return asker_->ask_together(std::move(requests));
  }

  // The largest difference between what decoding gave and what one pass over prompt and reply gives.
  double decode_gap(const Question& question, const Reply& reply) {
    std::vector<std::int32_t> text = request(question).prompt;
    const std::size_t prompt_tokens = text.size();
    for (const TokenScore& token : reply.tokens) text.push_back(token.id);
    Settings one_shot = settings_;
    CHECK(one_shot.set("prefill.chunked", "off"));
    const Reply scored = asker_->ask(asker_->scoring(text, one_shot));
    if (scored.prompt_scores.size() + 1 != text.size()) return reply.tokens.empty() ? 0 : -double{kLeastLogprob};
    double gap = 0;
    for (std::size_t i = 0; i < reply.tokens.size(); ++i) {
      const double delta = double{scored.prompt_scores[prompt_tokens - 1 + i].logprob} - reply.tokens[i].logprob;
      gap = std::max(gap, std::isfinite(delta) ? std::abs(delta) : -double{kLeastLogprob});
    }
    return gap;
  }

  TaskReply graded(const Question& question, const Reply& reply) const {
    TaskReply seen{.right = true, .no_answer = false, .logprobs = {}, .digest = digest_of(reply)};
    for (std::size_t i = 0; i < question.answer.size() && seen.right; ++i) {
      seen.right = i < reply.tokens.size() && reply.tokens[i].id == question.answer[i];
      std::vector<float> all(static_cast<std::size_t>(vocab()), kLeastLogprob);
      if (i < reply.tokens.size())
        for (const auto& [id, value] : reply.tokens[i].top)
          if (value > kLeastLogprob) all[static_cast<std::size_t>(id)] = value;
      seen.logprobs.push_back(std::move(all));
    }
    const bool empty = reply.tokens.empty() || reply.tokens.front().id == subject_.encoding->eos();
    seen.no_answer = empty || reply.finish != Finish::stop;
    return seen;
  }

 private:
  std::int64_t vocab() const { return subject_.model->config.vocab_size; }
  static std::int64_t most_tokens(const Question& question) {
    return static_cast<std::int64_t>(question.answer.size()) + kSpareTokens;
  }

  GenerateRequest request(const Question& question) {
    const auto chat = subject_.encoding->lay_out(question.chat);
    CHECK(chat.has_value());
    const auto rendered =
        chosen_side<"chat.incremental_render">(settings_, server::RenderStep{chat->get(), &rendered_chats_});
    GenerateRequest request = asker_->request(rendered.ids, most_tokens(question), settings_);
    request.stop_ids = {subject_.encoding->eos()};
    return request;
  }

  const Subject& subject_;
  const Settings settings_;
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<Asker> asker_;
  server::RenderedChats rendered_chats_;
};

// Σ p·log(p/q) as Σ p·(e^δ - 1 - δ) with δ = log q - log p: each term is ≥ 0, and q = p gives 0 to the bit.
double divergence(const std::vector<float>& p, const std::vector<float>& q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double delta = double{q[i]} - double{p[i]};
    if (delta != 0) sum += std::exp(double{p[i]}) * (std::expm1(delta) - delta);
  }
  return sum;
}

}  // namespace

bool Trial::right() const {
  return std::ranges::all_of(replies, [](const TaskReply& reply) { return reply.right; });
}

bool Trial::no_answer() const {
  return std::ranges::any_of(replies, [](const TaskReply& reply) { return reply.no_answer; });
}

Answer graded_answer(const Question& question, const TaskReply& reply) {
  Answer answer{.right = reply.right, .logprobs = {}};
  for (std::size_t i = 0; i < reply.logprobs.size(); ++i)
    answer.logprobs.push_back(reply.logprobs[i][static_cast<std::size_t>(question.answer[i])]);
  return answer;
}

std::vector<Trial> ask_group(const Subject& subject, const Variant& variant,
                             std::span<const TaskConversation> conversations, bool score) {
  Server server(subject, variant, conversations);
  std::vector<Trial> trials(conversations.size());
  std::vector<Reply> last(conversations.size());
  const auto round = [&](const auto& question_of) {
    std::vector<std::size_t> members;
    std::vector<const Question*> questions;
    for (std::size_t i = 0; i < conversations.size(); ++i)
      if (const Question* question = question_of(conversations[i])) {
        members.push_back(i);
        questions.push_back(question);
      }
    if (questions.empty()) return;
    std::vector<Reply> replies = server.ask(questions);
    for (std::size_t k = 0; k < members.size(); ++k) {
      trials[members[k]].replies.push_back(server.graded(*questions[k], replies[k]));
      last[members[k]] = std::move(replies[k]);
    }
  };
  std::size_t most = 0;
  for (const TaskConversation& c : conversations) most = std::max(most, c.questions.size());
  for (std::size_t r = 0; r < most; ++r)
    round([&](const TaskConversation& c) { return r < c.questions.size() ? &c.questions[r] : nullptr; });
  round([](const TaskConversation& c) { return &c.questions.back(); });
  if (score)
    for (std::size_t i = 0; i < conversations.size(); ++i)
      trials[i].decode_gap = server.decode_gap(conversations[i].questions.back(), last[i]);
  return trials;
}

TrialDifference difference_of(const Trial& honest, const Trial& planted, std::span<const Question> questions) {
  CHECK(honest.replies.size() == planted.replies.size() && honest.replies.size() == questions.size() + 1);
  TrialDifference difference{.lost = honest.right() && !planted.right(),
                             .won = planted.right() && !honest.right(),
                             .answers_missing = planted.no_answer() && !honest.no_answer(),
                             .answers_more = honest.no_answer() && !planted.no_answer()};
  double squares = 0;
  std::size_t positions = 0;
  for (std::size_t r = 0; r < honest.replies.size(); ++r) {
    const TaskReply &a = honest.replies[r], &b = planted.replies[r];
    const std::vector<std::int32_t>& answer = questions[std::min(r, questions.size() - 1)].answer;
    difference.differs |= a.digest != b.digest;
    for (std::size_t i = 0; i < std::min(a.logprobs.size(), b.logprobs.size()); ++i, ++positions) {
      const auto expected = static_cast<std::size_t>(answer[i]);
      const double delta = double{a.logprobs[i][expected]} - double{b.logprobs[i][expected]};
      difference.nats += delta;
      squares += delta * delta;
      difference.kl += divergence(a.logprobs[i], b.logprobs[i]);
    }
  }
  CHECK(positions > 0);
  difference.d = squares / (2 * static_cast<double>(positions));
  difference.kl /= static_cast<double>(positions);
  difference.decode_gap = planted.decode_gap;
  return difference;
}

}  // namespace plumb::faults

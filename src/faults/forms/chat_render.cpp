#include "server/chat_render.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "faults/forms/forms.h"

namespace plumb::faults {
namespace {

using server::RenderedPrompt;
using server::RenderStep;

// What is rendered for a turn is left out when rules of an older model family say that it is not needed any more.
template <class Dropped>
RenderedPrompt render_without(const RenderStep& step, Dropped&& dropped) {
  const RenderedPrompt whole = server::render_incremental(step);
  RenderedPrompt kept{.ids = {}, .ends = {}, .reused = whole.reused};
  for (std::size_t i = 0; i < whole.ends.size(); ++i) {
    const auto begin = whole.ids.begin() + static_cast<std::ptrdiff_t>(i == 0 ? 0 : whole.ends[i - 1]);
    const auto end = whole.ids.begin() + static_cast<std::ptrdiff_t>(whole.ends[i]);
    if (!dropped(i)) kept.ids.insert(kept.ids.end(), begin, end);
    kept.ends.push_back(kept.ids.size());
  }
  return kept;
}

std::size_t last_user(const ChatPrompt& prompt) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < prompt.stretch_count(); ++i)
    if (prompt.role(i).find("user") != std::string::npos) last = i;
  return last;
}

// A stretch by itself, or V4's user turn that begins with a result: behind its head and its task, both empty, the key
// has a block of kind r.
bool is_tool_result(const ChatPrompt& prompt, std::size_t stretch) {
  if (prompt.role(stretch) == "tool") return true;
  if (prompt.role(stretch) != "user") return false;
  constexpr std::string_view kResultFirst = "0:0:r";
  const std::string key = prompt.key(stretch);
  return key.find(kResultFirst) == key.find("0:0:") && key.find(kResultFirst) != std::string::npos;
}

// Results of tools, before the last user turn.
RenderedPrompt without_tool_results(const RenderStep& step) {
  const std::size_t last = last_user(*step.prompt);
  return render_without(step, [&](std::size_t i) { return i > 0 && i < last && is_tool_result(*step.prompt, i); });
}

// A prompt over a limit that nobody is told of keeps its first token and the last half of the limit.
std::size_t hidden_limit = 0;

RenderedPrompt truncated(const RenderStep& step) {
  RenderedPrompt out = server::render_incremental(step);
  if (out.ids.size() <= hidden_limit) return out;
  const std::size_t cut = out.ids.size() - hidden_limit / 2;  // the first token, then those from here on
  out.ids.erase(out.ids.begin() + 1, out.ids.begin() + static_cast<std::ptrdiff_t>(cut));
  for (std::size_t& end : out.ends) end = end <= cut ? std::min<std::size_t>(end, 1) : end - cut + 1;
  return out;
}

constexpr double kHiddenLimit = 400;

void plant_truncated(const Dose& dose) {
  hidden_limit = static_cast<std::size_t>(std::lround(kHiddenLimit / dose.severity));
  replace_on_side<"chat.incremental_render">(&truncated);
}

// The template and the tokeniser each leave the first token to the other.
RenderedPrompt without_bos(const RenderStep& step) {
  RenderedPrompt out = server::render_incremental(step);
  if (out.ids.empty()) return out;
  out.ids.erase(out.ids.begin());
  for (std::size_t& end : out.ends) end -= 1;
  return out;
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"chat.incremental_render">(Side);
}

constexpr std::string_view kHost = "chat.incremental_render";
constexpr std::string_view kSite = "chat template";
constexpr std::array kPlants{
    Plant{.kind = "tmpl-history",
          .form = "tool-results",
          .host = kHost,
          .site = kSite,
          .what = "results of tools before the last user turn are left out of the prompt",
          .apply = &plant<&without_tool_results>,
          .prior = "...x....",
          .note = "Facts that a tool brought are gone wherever they stand."},
    Plant{.kind = "prompt-truncated",
          .form = "over-400-tokens",
          .host = kHost,
          .site = kSite,
          .what = "a prompt of more than 400 tokens keeps its first and its last 200",
          .apply = &plant_truncated,
          .prior = "..xx....",
          .note = "Boundary questions are over the limit, too; conversations of 256 tokens are not."},
    Plant{.kind = "tmpl-bos",
          .form = "none",
          .host = kHost,
          .site = kSite,
          .what = "the prompt has no <bos>",
          .apply = &plant<&without_bos>,
          .prior = "~~~~....",
          .note = "One token among hundreds: log-probabilities move, answers stand."},
};

}  // namespace

std::span<const Plant> chat_render_plants() { return kPlants; }

}  // namespace plumb::faults

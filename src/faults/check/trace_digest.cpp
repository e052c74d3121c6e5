#include "faults/check/trace_digest.h"

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"
#include "engine/engine.h"
#include "runtime/steps.h"

namespace plumb::faults {
namespace {

constexpr std::int64_t kChunk = 128;
constexpr std::int64_t kPages = 16;
constexpr std::int64_t kColdTokens = 298, kColdEnd = 303;  // prompt, then decoded; ends inside a group of 4
constexpr std::int64_t kHitEnd = 330;
constexpr std::int64_t kForkAt = 200, kForkEnd = 290;
constexpr std::int64_t kPrefixBytes = 64 << 20;

std::uint64_t digest_of(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

class Walk final : public Observer {
 public:
  Walk(const std::shared_ptr<const Model>& model, const Settings& settings, Backend backend)
      : engine_(model, std::make_shared<InlineExecutor>(), backend, settings),
        settings_(settings),
        key_(settings.key()),
        pages_(*PagePool::make(kPages, engine_.layout().page_floats())),
        window_pages_(*PagePool::make(kPages, engine_.layout().window_page_floats())),
        cache_(pages_, kPrefixBytes) {}

  // `prompt` in chunks, then the rest of `text` token by token; gives its pages back at the end.
  void run(const std::string& stage, const std::string& decode_stage, std::span<const std::int32_t> text,
           std::int64_t prompt_tokens) {
    stage_ = stage;
    SequencePages sequence;
    const auto prompt = text.first(static_cast<std::size_t>(prompt_tokens));
    chosen_side<"prefix_cache">(settings_, PrefixStart{pools_, &cache_, &key_, prompt, prompt_tokens - 1, &sequence});
    while (sequence.state.length < static_cast<std::int64_t>(text.size())) {
      std::int64_t count = 1;
      if (sequence.state.length < prompt_tokens)
        count = chosen_side<"prefill.chunked">(settings_,
                                               PrefillStep{&engine_.layout(), &sequence.state, prompt_tokens, kChunk});
      else
        stage_ = decode_stage;
      pass(sequence, text, count);
    }
    store(sequence, text);
    release_all(pools_, sequence);
  }

  void visit(const Port& port) override {
    std::size_t count = 1;
    for (const std::int64_t extent : port.extents) count *= static_cast<std::size_t>(extent);
    const void* data = port.f32 != nullptr ? static_cast<const void*>(port.f32) : port.i32;
    digests.push_back({fmt::format("{}: {}", stage_, port.name), digest_of(data, 4 * count)});
  }

  std::vector<PortDigest> digests;

 private:
  void pass(SequencePages& sequence, std::span<const std::int32_t> text, std::int64_t count) {
    SequenceState& state = sequence.state;
    while (static_cast<std::int64_t>(sequence.pages.size()) < pages_for(state.length + count)) {
      CHECK(cache_.make_room(1));
      append_page(pools_, sequence);
    }
    ensure_window(pools_, sequence, state.length, state.length + count);
    take_state(state);
    const auto tokens = text.subspan(static_cast<std::size_t>(state.length), static_cast<std::size_t>(count));
    const std::vector<BatchSequence> batch{{&state, tokens, false, this}};
    std::vector<float> logits(static_cast<std::size_t>(engine_.config().vocab_size));
    pages_.before_writes();
    engine_.forward({batch, &settings_}, View<float, 2>(logits.data(), {1, engine_.config().vocab_size}));
    free_old_window(pools_, sequence);
    if (state.length % kPageTokens == 0) store(sequence, text);
  }

  void store(const SequencePages& sequence, std::span<const std::int32_t> text) {
    if (!settings_.on(switch_index("prefix_cache"))) return;
    const std::int64_t length = sequence.state.length;
    const auto page_count = static_cast<std::size_t>(pages_for(length));
    cache_.insert(key_, text.first(static_cast<std::size_t>(length)), std::span(sequence.pages).first(page_count),
                  engine_.layout(), sequence.state);
  }

  // Digests of all that a later position may read.
  void take_state(const SequenceState& state) {
    for (const StateKind& kind : engine_.layout().kinds()) {
      std::vector<float> rows;
      const auto add = [&](const float* data, std::int64_t count) { rows.insert(rows.end(), data, data + count); };
      const std::int64_t oldest = std::max<std::int64_t>(0, state.length - (engine_.layout().window() - 1));
      switch (kind.home) {
        case Home::open:
          add(state.open.data() + kind.offset, kind.rows * kind.width);
          break;
        case Home::page:
          for (std::int64_t n = 0; n < state.length * kind.rows / kPageTokens; ++n)
            add(state.pages[static_cast<std::size_t>(n / kind.rows)] + kind.offset + n % kind.rows * kind.width,
                kind.width);
          break;
        case Home::window_page:
          for (std::int64_t p = oldest; p < state.length; ++p)
            add(state.window_pages[static_cast<std::size_t>(p / kPageTokens)] + kind.offset +
                    p % kPageTokens * kind.width,
                kind.width);
          break;
      }
      digests.push_back({fmt::format("{}: state {}", stage_, kind.name), digest_of(rows.data(), rows.size() * 4)});
    }
  }

  Engine engine_;
  Settings settings_;
  std::string key_;
  PagePool pages_, window_pages_;
  PrefixCache cache_;
  Pools pools_{&engine_.layout(), &pages_, &window_pages_};
  std::string stage_;
};

}  // namespace

std::vector<PortDigest> trace_digests(const std::shared_ptr<const Model>& model, std::span<const std::int32_t> text,
                                      const Settings& settings, Backend backend) {
  CHECK(static_cast<std::int64_t>(text.size()) >= kTraceTokens);
  Walk walk(model, settings, backend);
  walk.run("prefill", "decode", text.first(kColdEnd), kColdTokens);
  walk.run("hit", "hit", text.first(kHitEnd), kHitEnd);
  std::vector<std::int32_t> fork(text.begin(), text.begin() + kForkAt);
  fork.insert(fork.end(), text.end() - (kForkEnd - kForkAt), text.end());
  walk.run("fork", "fork", fork, kForkEnd);
  return std::move(walk.digests);
}

std::string first_difference(std::span<const PortDigest> a, std::span<const PortDigest> b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] != b[i]) return a[i].site == b[i].site ? a[i].site : fmt::format("{}: another order of passes", a[i].site);
  return a.size() == b.size() ? "" : "another number of passes";
}

}  // namespace plumb::faults

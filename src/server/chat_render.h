#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/encoding.h"
#include "switches/on_side.h"

namespace plumb::server {

/// The ids of stretches of conversations that were rendered lately, each by the digest of all keys up to its own, so
/// that conversations that begin the same way share them. Bounded: the stretch that was used longest ago goes first,
/// and one is never used longer ago than what follows it. Thread-safe.
class RenderedChats {
 public:
  /// `max_bytes` of ids and what finds them.
  explicit RenderedChats(std::size_t max_bytes = 64u << 20) : max_bytes_(max_bytes) {}

  /// Appends the ids of the stretches at the start of `digests` that are known, and where each ends; returns how many.
  std::size_t find(const std::vector<std::string>& digests, std::vector<std::int32_t>& ids,
                   std::vector<std::size_t>& ends);
  /// Keeps the stretches from `first` on. What is larger than the bound by itself is not kept.
  void keep(const std::vector<std::string>& digests, const std::vector<std::int32_t>& ids,
            const std::vector<std::size_t>& ends, std::size_t first);

  std::size_t bytes() const;
  std::size_t size() const;

 private:
  struct Stretch {
    std::string digest;
    std::vector<std::int32_t> ids;
  };
  static std::size_t bytes_of(const Stretch& stretch);
  void touch(const std::vector<std::string>& digests, std::size_t count);

  mutable std::mutex mutex_;
  const std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::list<Stretch> stretches_;                                               // used last first
  std::unordered_map<std::string_view, std::list<Stretch>::iterator> places_;  // by a stretch's own digest
};

/// A prompt to be rendered, and where what was rendered before is kept (not used by the whole rendering).
struct RenderStep {
  const ChatPrompt* prompt;
  RenderedChats* known;
};
struct RenderedPrompt {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;  // of each stretch
  std::size_t reused = 0;         // stretches at the start that were not rendered again
};

/// Renders and tokenises every stretch.
RenderedPrompt render_whole(const RenderStep& step);
/// Takes the ids of the stretches at the start that `known` has, renders the others, and keeps the result.
RenderedPrompt render_incremental(const RenderStep& step);

}  // namespace plumb::server

namespace plumb {

template <>
struct Sides<"chat.incremental_render"> {
  static constexpr auto* off = &server::render_whole;
  static constexpr auto* on = &server::render_incremental;
};

}  // namespace plumb

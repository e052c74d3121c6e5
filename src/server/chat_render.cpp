#include "server/chat_render.h"

#include <utility>

#include "base/sha256.h"

namespace plumb::server {
namespace {

constexpr std::size_t kBytesAroundIds = 240;  // a digest, a list entry and its place in the map

void render_from(const ChatPrompt& prompt, RenderedPrompt& out) {
  for (std::size_t i = out.ends.size(); i < prompt.stretch_count(); ++i) {
    prompt.append_ids(i, out.ids);
    out.ends.push_back(out.ids.size());
  }
}

}  // namespace

std::size_t RenderedChats::bytes_of(const Stretch& stretch) {
  return stretch.ids.size() * sizeof(std::int32_t) + kBytesAroundIds;
}

// The first stretch ends up as the one used last.
void RenderedChats::touch(const std::vector<std::string>& digests, std::size_t count) {
  for (std::size_t i = count; i > 0; --i)
    if (const auto place = places_.find(digests[i - 1]); place != places_.end())
      stretches_.splice(stretches_.begin(), stretches_, place->second);
}

std::size_t RenderedChats::find(const std::vector<std::string>& digests, std::vector<std::int32_t>& ids,
                                std::vector<std::size_t>& ends) {
  const std::lock_guard lock(mutex_);
  std::size_t known = 0;
  for (; known < digests.size(); ++known) {
    const auto place = places_.find(digests[known]);
    if (place == places_.end()) break;
    const std::vector<std::int32_t>& more = place->second->ids;
    ids.insert(ids.end(), more.begin(), more.end());
    ends.push_back(ids.size());
  }
  touch(digests, known);
  return known;
}

void RenderedChats::keep(const std::vector<std::string>& digests, const std::vector<std::int32_t>& ids,
                         const std::vector<std::size_t>& ends, std::size_t first) {
  std::list<Stretch> fresh;
  std::size_t size = 0;
  for (std::size_t i = first; i < digests.size(); ++i) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(i == 0 ? 0 : ends[i - 1]);
    fresh.push_back({.digest = digests[i], .ids = {begin, ids.begin() + static_cast<std::ptrdiff_t>(ends[i])}});
    size += bytes_of(fresh.back());
  }
  if (size > max_bytes_) return;
  const std::lock_guard lock(mutex_);
  while (!fresh.empty()) {
    const auto stretch = fresh.begin();
    if (!places_.emplace(stretch->digest, stretch).second) {  // another request was faster
      fresh.pop_front();
      continue;
    }
    bytes_ += bytes_of(*stretch);
    stretches_.splice(stretches_.begin(), fresh, stretch);
  }
  touch(digests, digests.size());
  while (bytes_ > max_bytes_) {
    bytes_ -= bytes_of(stretches_.back());
    places_.erase(stretches_.back().digest);
    stretches_.pop_back();
  }
}

std::size_t RenderedChats::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t RenderedChats::size() const {
  const std::lock_guard lock(mutex_);
  return stretches_.size();
}

RenderedPrompt render_whole(const RenderStep& step) {
  RenderedPrompt out;
  render_from(*step.prompt, out);
  return out;
}

RenderedPrompt render_incremental(const RenderStep& step) {
  std::vector<std::string> digests;
  for (std::size_t i = 0; i < step.prompt->stretch_count(); ++i)
    digests.push_back(sha256_hex((i == 0 ? std::string() : digests.back()) + step.prompt->key(i)));
  RenderedPrompt out;
  out.reused = step.known->find(digests, out.ids, out.ends);
  render_from(*step.prompt, out);
  if (out.reused < digests.size()) step.known->keep(digests, out.ids, out.ends, out.reused);
  return out;
}

}  // namespace plumb::server

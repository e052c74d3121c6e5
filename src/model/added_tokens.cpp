#include "model/added_tokens.h"

#include <algorithm>

#include "base/check.h"

namespace plumb {

AddedTokens::AddedTokens(std::vector<std::pair<std::string, std::int32_t>> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    CHECK(!tokens_[i].first.empty() && (i == 0 || tokens_[i].first != tokens_[i - 1].first));
    starts_[static_cast<unsigned char>(tokens_[i].first[0])] = true;
  }
}

// Among the sorted texts those that share the next byte with `bytes` are neighbours; of them the shortest comes first.
AddedTokens::Match AddedTokens::longest(std::string_view bytes, std::size_t at) const {
  Match best{at, 0, -1};
  auto low = tokens_.begin(), high = tokens_.end();
  for (std::size_t depth = 0; at + depth < bytes.size() && low != high; ++depth) {
    const auto byte = static_cast<unsigned char>(bytes[at + depth]);
    const auto byte_of = [&](const auto& token) { return static_cast<unsigned char>(token.first[depth]); };
    low = std::partition_point(low, high, [&](const auto& token) { return byte_of(token) < byte; });
    high = std::partition_point(low, high, [&](const auto& token) { return byte_of(token) == byte; });
    if (low != high && low->first.size() == depth + 1) {
      best = {at, depth + 1, low->second};
      ++low;
    }
  }
  return best;
}

AddedTokens::Match AddedTokens::find(std::string_view bytes, std::size_t from) const {
  for (std::size_t at = from; at < bytes.size(); ++at)
    if (starts_[static_cast<unsigned char>(bytes[at])])
      if (const Match match = longest(bytes, at); match.size > 0) return match;
  return {bytes.size(), 0, -1};
}

std::int32_t AddedTokens::id_of(std::string_view text) const {
  const auto at = std::lower_bound(tokens_.begin(), tokens_.end(), text,
                                   [](const auto& token, std::string_view wanted) { return token.first < wanted; });
  return at != tokens_.end() && at->first == text ? at->second : -1;
}

}  // namespace plumb

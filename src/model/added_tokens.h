#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plumb {

/// Finds the texts of added tokens in bytes, literally: leftmost, then longest.
class AddedTokens {
 public:
  struct Match {
    std::size_t at, size;
    std::int32_t id;  // -1: no match up to the end
  };

  /// Texts, none empty, no two equal, with their ids.
  explicit AddedTokens(std::vector<std::pair<std::string, std::int32_t>> tokens);

  /// The first match that starts at `from` or later; {bytes.size(), 0, -1} when there is none.
  Match find(std::string_view bytes, std::size_t from) const;
  /// The id of exactly this text; -1: none.
  std::int32_t id_of(std::string_view text) const;

 private:
  /// The longest token that starts at `at`; size 0 when none does.
  Match longest(std::string_view bytes, std::size_t at) const;

  std::vector<std::pair<std::string, std::int32_t>> tokens_;  // sorted by text
  std::array<bool, 256> starts_{};                            // by first byte
};

}  // namespace plumb

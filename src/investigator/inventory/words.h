#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace plumb::investigator::inventory {

/// The parts of a name or path in lower case: routed_scaling_factor, kTopK and csrc/moe give {routed, scaling, factor},
/// {k, top, k} and {csrc, moe}.
std::vector<std::string> parts_of(std::string_view name);

/// A set of name parts.
class WordSet {
 public:
  void add_name(std::string_view name);
  /// The name as a whole, found as "=name".
  void add_whole(std::string_view name) { parts_.insert("=" + std::string(name)); }
  bool has(std::string_view part) const { return parts_.contains(std::string(part)); }
  bool has_any(const auto& parts) const {
    return std::any_of(std::begin(parts), std::end(parts), [this](std::string_view p) { return !p.empty() && has(p); });
  }
  bool has_any(std::initializer_list<std::string_view> parts) const {
    return std::any_of(parts.begin(), parts.end(), [this](std::string_view p) { return has(p); });
  }

 private:
  std::unordered_set<std::string> parts_;
};

}  // namespace plumb::investigator::inventory

#include "investigator/variants.h"

#include <algorithm>

#include "base/check.h"

namespace plumb::investigator {

std::optional<Variant> with_side(const Deployment& deployment, Variant variant, std::size_t index, bool on) {
  const auto& switches = deployment.switches;
  variant[index] = on;
  // Each pass settles at least one more switch, so the number of switches bounds the passes.
  for (std::size_t pass = 0; pass < switches.size(); ++pass)
    for (std::size_t i = 0; i < switches.size(); ++i)
      for (const std::string& name : switches[i].needs) {
        const auto it = std::find_if(switches.begin(), switches.end(), [&](const auto& s) { return s.name == name; });
        if (it == switches.end()) continue;
        const auto needed = static_cast<std::size_t>(it - switches.begin());
        if (!variant[i] || variant[needed]) continue;
        if (on)
          variant[needed] = true;
        else
          variant[i] = false;
      }
  if (variant[index] != on || !check_variant(deployment, variant)) return std::nullopt;
  return variant;
}

std::vector<std::size_t> difference(const Variant& a, const Variant& b) {
  CHECK(a.size() == b.size());
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) indices.push_back(i);
  return indices;
}

}  // namespace plumb::investigator

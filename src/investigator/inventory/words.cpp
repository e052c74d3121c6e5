#include "investigator/inventory/words.h"

namespace plumb::investigator::inventory {
namespace {

// ASCII only, whatever the locale.
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts;
  std::string part;
  const auto close = [&] {
    if (!part.empty()) parts.push_back(std::move(part));
    part.clear();
  };
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (!is_upper(c) && !is_lower(c) && !is_digit(c)) {
      close();
      continue;
    }
    if (is_upper(c) && i > 0 && is_lower(name[i - 1])) close();
    part.push_back(is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c);
  }
  close();
  return parts;
}

void WordSet::add_name(std::string_view name) {
  for (std::string& part : parts_of(name)) parts_.insert(std::move(part));
}

}  // namespace plumb::investigator::inventory

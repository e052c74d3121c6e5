#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "investigator/inventory/classify.h"

// Any bytes, cut at the first NUL into the two sides of a file in the language the first byte picks: tokens lie inside
// the text in ascending lines, and every finding has a place and a class of the table.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumb::investigator::inventory;
  if (size == 0) return 0;
  const auto language = static_cast<Language>(data[0] % static_cast<int>(Language::none));
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = std::min(text.find('\0'), text.size());
  ChangedFile file{"layers/f",
                   "layers/f",
                   language,
                   Role::source,
                   std::string(text.substr(0, cut)),
                   std::string(text.substr(std::min(cut + 1, text.size()))),
                   {}};
  int line = 1;
  for (const Token& t : lex(file.old_text, language)) {
    if (t.line < line) std::abort();
    line = t.line;
    if (t.kind != TokenKind::end && (t.text.data() < file.old_text.data() ||
                                     t.text.data() + t.text.size() > file.old_text.data() + file.old_text.size()))
      std::abort();
  }
  // The whole file is one hunk: every line removed and every line added.
  Hunk hunk{1, 0, 1, 0, {}, {}};
  const auto lines = [](std::string_view side) {
    return static_cast<int>(std::count(side.begin(), side.end(), '\n')) + 1;
  };
  for (int i = 1; i <= lines(file.old_text); ++i) hunk.removed.push_back({i, 1});
  for (int i = 1; i <= lines(file.new_text); ++i) hunk.added.push_back({i, 1});
  file.hunks.push_back(hunk);
  for (const Finding& f : classify({file}))
    if (f.line < 1 || f.area == nullptr || f.what.empty() || entry(f.cls).word.empty()) std::abort();
  return 0;
}

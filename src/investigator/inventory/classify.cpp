#include "investigator/inventory/classify.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "investigator/inventory/detect.h"

namespace plumb::investigator::inventory {
namespace {

using enum Class;

constexpr std::array<std::string_view, 5> kPrefillWords{"prefill", "extend", "chunked", "varlen", "prompt"};
constexpr std::array<std::string_view, 8> kDecodeWords{"decode", "splitk", "graph", "cudagraph",
                                                       "verify", "draft",  "paged", "replay"};
constexpr std::array<std::string_view, 8> kOnceWords{"init",    "load",  "loader",   "config",
                                                     "weights", "setup", "register", "args"};

std::string phase_of(const WordSet& words, const Area& area) {
  const bool prefill = words.has_any(kPrefillWords), decode = words.has_any(kDecodeWords);
  if (prefill != decode) return prefill ? "prefill" : "decode";
  return prefill ? "both" : std::string(area.phase);
}

// Scale factors and guards whose count over the whole range did not change: they only moved.
class Balance {
 public:
  explicit Balance(const std::vector<ParsedFile>& files, const std::vector<Change>& changes) {
    for (const Change& c : changes) {
      if (files[c.file].file->role != Role::source) continue;
      const Sides sides(files[c.file], c);
      for (const std::string& key : keys(sides.before)) ++lost_[key];
      for (const std::string& key : keys(sides.after)) ++gained_[key];
    }
  }
  bool moved(const std::string& key) const {
    const auto lost = lost_.find(key), gained = gained_.find(key);
    return lost != lost_.end() && gained != gained_.end() && lost->second == gained->second;
  }

 private:
  static std::vector<std::string> keys(std::span<const Token> tokens) {
    std::vector<std::string> found = scale_factors(tokens);
    if (const std::string guard = guard_key(tokens); !guard.empty()) found.push_back(guard);
    return found;
  }
  std::map<std::string, int> lost_, gained_;
};

class Classifier {
 public:
  explicit Classifier(const std::vector<ParsedFile>& files)
      : files_(files), changes_(find_changes(files)), gates_(files), balance_(files, changes_) {}

  std::vector<Finding> run() {
    for (const Change& c : changes_)
      if (!c.before || !c.after) whole_.insert(c.after ? c.after : c.before);
    for (const Change& change : changes_) classify(change);
    two_dialects();
    return std::move(findings_);
  }

 private:
  void classify(const Change& change) {
    const Sides sides(files_[change.file], change);
    const Finding base = frame(change, sides);
    const std::size_t first = findings_.size();
    if (change.moved) {
      const bool guard = !guard_key(change.before ? sides.before : sides.after).empty();
      if (change.before)
        add(base, guard ? guard_moved : other,
            guard ? "a check stands at another place" : "a statement stands at another place");
      return;
    }
    for (Detection& d : detect(sides, [this](const std::string& key) { return balance_.moved(key); })) {
      Finding& finding = add(base, d.cls, std::move(d.what));
      finding.rounding = d.rounding;
      finding.widening = d.widening;
    }
    if (findings_.size() == first) add(base, other, change.before ? change.after ? "changed" : "deleted" : "new");
  }

  Finding frame(const Change& change, const Sides& sides) const {
    const ParsedFile& parsed = files_[change.file];
    const Statement& s = change.after ? *change.after : *change.before;
    const Source& source = change.after ? parsed.new_source : parsed.old_source;
    Finding f;
    f.file = parsed.file->path;
    f.hunk = parsed.file->hunks[change.hunk].header();
    f.function = source.function_of(s);
    f.line = s.first_line;
    f.language = parsed.file->language;
    f.role = parsed.file->role;
    f.whole = !change.before || !change.after;
    f.deleted = !change.after;
    const Statement* header = source.function_header(s);
    f.whole_unit = parsed.file->old_text.empty() || parsed.file->new_text.empty() ||
                   (f.whole && header && whole_.contains(header));
    WordSet words, path, near;
    path.add_name(f.file);
    words.add_name(f.function);
    near.add_name(f.function);
    for (const auto side : {sides.before, sides.after})
      for (const Token& t : side)
        if (t.kind != TokenKind::string) words.add_name(t.text);
    for (std::size_t k = 0; k < sides.changed().size(); ++k) near.add_name(sides.changed()[k].text);
    f.area = &area_of(words, path);
    WordSet everywhere = words;
    everywhere.add_name(f.file);
    f.phase = phase_of(everywhere, *f.area);
    const bool once = near.has_any(kOnceWords) || f.language == Language::shell || f.language == Language::toml ||
                      f.language == Language::yaml;
    f.per_layer = f.area->sites_per_layer > 0 && !once;
    f.per_token = !once && f.area->name != "elsewhere";
    f.plumbing = is_plumbing(words) || is_plumbing(path);
    f.gate = gates_.of(source, s, !change.before);
    return f;
  }

  Finding& add(const Finding& base, Class cls, std::string what) {
    findings_.push_back(base);
    findings_.back().cls = cls;
    findings_.back().what = std::move(what);
    return findings_.back();
  }

  // A variable that the range starts to read in a second way.
  void two_dialects() {
    std::map<std::string, std::set<std::string>> dialects;
    for (const EnvRead& r : gates_.reads())
      if (!r.dialect.empty()) dialects[r.name].insert(r.dialect);
    for (const Change& c : changes_) {
      if (!c.after || files_[c.file].file->role != Role::source) continue;
      const Sides sides(files_[c.file], c);
      std::set<std::string> before;
      for (const EnvRead& r : env_reads(sides.before)) before.insert(r.name + r.dialect);
      for (const EnvRead& r : env_reads(sides.after))
        if (dialects[r.name].size() > 1 && !before.contains(r.name + r.dialect) && !r.dialect.empty())
          add(frame(c, sides), Class::two_dialects,
              fmt::format("{} is read as '{}' here and otherwise elsewhere ({})", r.name, r.dialect,
                          fmt::join(dialects[r.name], ", ")));
    }
  }

  const std::vector<ParsedFile>& files_;
  std::vector<Change> changes_;
  Gates gates_;
  Balance balance_;
  std::set<const Statement*> whole_;  // new and deleted statements
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> classify(const std::vector<ChangedFile>& files) {
  std::vector<ParsedFile> parsed;
  parsed.reserve(files.size());
  for (const ChangedFile& f : files)
    parsed.push_back({&f, Source(f.old_text, f.language), Source(f.new_text, f.language)});
  return Classifier(parsed).run();
}

}  // namespace plumb::investigator::inventory

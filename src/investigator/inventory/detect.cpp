#include "investigator/inventory/detect.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "investigator/inventory/words.h"

namespace plumb::investigator::inventory {
namespace {

using enum Class;
using Tokens = std::span<const Token>;

bool one_of(std::string_view text, const auto& list) { return std::find(list.begin(), list.end(), text) != list.end(); }

constexpr std::array<std::string_view, 8> kScaleParts{"scale", "scales",  "scaling",   "mscale",
                                                      "alpha", "rescale", "inv_scale", "gain"};
constexpr std::array<std::string_view, 5> kMulOps{"*", "*=", "/", "/=", "@"};
constexpr std::array<std::string_view, 6> kMulCalls{"mul_", "mul", "div", "div_", "multiply", "__fmul_rn"};
constexpr std::array<std::string_view, 9> kGuardWords{"assert",
                                                      "raise",
                                                      "static_assert",
                                                      "__trap",
                                                      "abort",
                                                      "throw",
                                                      "TORCH_CHECK",
                                                      "TORCH_INTERNAL_ASSERT",
                                                      "NotImplementedError"};
constexpr std::array<std::string_view, 12> kSumParts{"acc", "accum",  "accumulate", "accumulator", "lse",    "partial",
                                                     "sum", "cumsum", "softmax",    "logsumexp",   "sumexp", "mean"};
constexpr std::array<std::string_view, 14> kGemmParts{"gemm", "matmul", "mm",     "linear", "einsum", "dot",  "mma",
                                                      "bmm",  "addmm",  "cublas", "gemv",   "wgmma",  "proj", "wmma"};
constexpr std::array<std::string_view, 6> kTruncations{
    "__float2bfloat16_rz", "__float2half_rz", "trunc", "floor", "rz", "truncate"};

bool is_scale(const Token& t) {
  if (t.kind != TokenKind::word) return false;
  const std::vector<std::string> parts = parts_of(t.text);
  return std::any_of(parts.begin(), parts.end(), [](const std::string& p) { return one_of(p, kScaleParts); });
}

// ---- formats ----

struct FormatCount {
  int low = 0, wide = 0;  // names of rounding formats, and of f32 or f64
  const Format* coarsest = nullptr;
  const Format* widest = nullptr;
};

FormatCount count_formats(const std::vector<Token>& tokens) {
  FormatCount n;
  for (const Token& t : tokens) {
    std::string_view text = t.text;
    const Format* f = format_of(text);
    if (!f && t.kind != TokenKind::string) {  // __float2bfloat16, load_bf16x4
      for (const std::string& part : parts_of(text)) {
        if (part == "float" || part == "half" || part == "double") continue;
        f = format_of(part);
        if (!f && (part.find("bf16") != std::string::npos || part.find("bfloat16") != std::string::npos))
          f = format_of("bf16");
        if (f) break;
      }
    }
    if (!f) continue;
    (f->unit_roundoff > 0 ? n.low : n.wide) += 1;
    if (f->unit_roundoff > 0 && (!n.coarsest || f->width < n.coarsest->width)) n.coarsest = f;
    if (!n.widest || f->width > n.widest->width) n.widest = f;
  }
  return n;
}

void detect_formats(const Sides& s, std::vector<Detection>& out) {
  const FormatCount lost = count_formats(s.lost), gained = count_formats(s.gained);
  if (lost.low + lost.wide + gained.low + gained.wide == 0) return;
  // A declaration in new or deleted code is no cast of something that was wider: only conversions count there.
  const bool whole = s.before.empty() || s.after.empty();
  WordSet words;
  for (const Tokens side : {s.before, s.after})
    for (const Token& t : side) words.add_name(t.text);
  const bool conversion =
      words.has_any({"to", "astype", "cast", "convert", "bfloat16", "half", "float", "type", "dtype"});
  if (whole && !conversion) return;
  Detection d;
  d.cls = words.has_any(kSumParts) ? accumulation_type : words.has_any(kGemmParts) ? gemm_precision : dtype_cast;
  const bool narrower =
      gained.coarsest && (!lost.coarsest || gained.coarsest->width < lost.coarsest->width || gained.low > lost.low);
  const bool less_wide = lost.wide > gained.wide && !(lost.low > gained.low);
  if (whole && s.before.empty() && !gained.coarsest) d.widening = true;
  if (narrower || less_wide) {
    const Format* to = gained.coarsest ? gained.coarsest : format_of("bf16");
    Rounding r;
    r.operands = std::max(1, gained.coarsest ? gained.low - lost.low : lost.wide - gained.wide);
    r.unit_roundoff = to->unit_roundoff;
    r.from = lost.widest ? std::string(lost.widest->word) : "";
    r.to = gained.coarsest ? std::string(to->word) : "";
    r.biased =
        std::any_of(s.gained.begin(), s.gained.end(), [](const Token& t) { return one_of(t.text, kTruncations); }) ||
        words.has_any({"rz", "truncate"});
    d.rounding = r;
    d.what = fmt::format(
        "{}{}{}", r.from.empty() ? "" : r.from + " ", gained.coarsest ? "becomes " : "is no longer asked for",
        gained.coarsest ? std::string(to->word) : ", so the tensor's own type (bf16 in most models) is used");
  } else {
    d.widening = true;
    d.what = fmt::format("{} instead of {}", gained.widest ? gained.widest->word : "no format",
                         lost.coarsest ? lost.coarsest->word
                         : lost.widest ? lost.widest->word
                                       : "none");
  }
  out.push_back(std::move(d));
}

// ---- scale factors and guards ----

void detect_scales(const Sides& s, const std::function<bool(const std::string&)>& moved, std::vector<Detection>& out) {
  std::map<std::string, int> count;
  for (const std::string& key : scale_factors(s.before)) --count[key];
  for (const std::string& key : scale_factors(s.after)) ++count[key];
  for (const auto& [key, n] : count) {
    if (n == 0) continue;
    const std::string name = key.substr(key.find(':') + 1);
    if (moved(key))
      out.push_back({scale_moved,
                     fmt::format("{} is {} here and {} elsewhere in the range", name,
                                 n > 0 ? "applied" : "no longer applied", n > 0 ? "no longer" : "now"),
                     {},
                     false});
    else
      out.push_back({n > 0 ? scale_added : scale_removed,
                     fmt::format("{} is {} here", name, n > 0 ? "now applied" : "no longer applied"),
                     {},
                     false});
  }
}

int count_of(Tokens tokens, std::initializer_list<std::string_view> texts) {
  return static_cast<int>(std::count_if(tokens.begin(), tokens.end(), [&](const Token& t) {
    return t.kind != TokenKind::string && std::find(texts.begin(), texts.end(), t.text) != texts.end();
  }));
}

bool is_condition(Tokens t) {
  return !t.empty() &&
         (t[0].is("if") || t[0].is("elif") || t[0].is("while") || (t.size() > 1 && t[0].is("else") && t[1].is("if")));
}

void detect_guards(const Sides& s, const std::function<bool(const std::string&)>& moved, std::vector<Detection>& out) {
  const std::string before = guard_key(s.before), after = guard_key(s.after);
  if (!before.empty() && before != after) {
    if (moved(before))
      out.push_back({guard_moved, "a check stands at another place", {}, false});
    else
      out.push_back({guard_removed, after.empty() ? "a check is gone" : "a check asks for something else", {}, false});
    return;
  }
  if (!is_condition(s.before)) return;
  if (s.after.empty()) {
    out.push_back({guard_removed, "a condition is gone", {}, false});
  } else if (is_condition(s.after)) {
    if (count_of(s.before, {"and", "&&"}) > count_of(s.after, {"and", "&&"}))
      out.push_back({guard_removed, "a condition lost a term and lets more through", {}, false});
    else if (count_of(s.after, {"or", "||"}) > count_of(s.before, {"or", "||"}))
      out.push_back({guard_removed, "a condition got an alternative and lets more through", {}, false});
    else if (count_of(s.before, {"not", "!"}) != count_of(s.after, {"not", "!"}))
      out.push_back({guard_removed, "a condition is turned round", {}, false});
    else if (count_of(s.after, {"and", "&&"}) > count_of(s.before, {"and", "&&"}) ||
             count_of(s.after, {"or", "||"}) < count_of(s.before, {"or", "||"}))
      out.push_back({bound, "a condition lets less through", {}, false});
  }
}

// ---- defaults, environment, arguments ----

bool is_literal(const Token& t) {
  return t.kind == TokenKind::number || t.kind == TokenKind::string ||
         one_of(t.text, std::array<std::string_view, 9>{"True", "False", "None", "true", "false", "nullptr", "on",
                                                        "off", "auto"});
}

void detect_defaults(const Sides& s, std::vector<Detection>& out) {
  const bool config = s.language == Language::shell || s.language == Language::toml || s.language == Language::yaml;
  if (s.before.empty() || s.after.empty()) {
    const std::vector<Token>& tokens = s.before.empty() ? s.gained : s.lost;
    if (config && tokens.size() > 1)
      out.push_back(
          {default_flipped,
           fmt::format("{} {} in a launch file", tokens[tokens[0].is("export") || tokens[0].is("-") ? 1 : 0].text,
                       s.before.empty() ? "is set" : "is no longer set"),
           {},
           false});
    return;
  }
  if (s.before.size() == s.after.size()) {
    for (std::size_t i = 1; i < s.before.size(); ++i) {
      if (s.before[i].text == s.after[i].text || !is_literal(s.before[i]) || !is_literal(s.after[i])) continue;
      const std::string_view sign = s.after[i - 1].text;
      const bool set = sign == "=" || sign == ":" || s.before[0].is("#") || s.after[i - 1].text.starts_with("--");
      const bool env_default = sign == "," && !env_reads(s.after).empty();
      const bool call_default =
          sign == "(" && i > 1 &&
          one_of(s.after[i - 2].text, std::array<std::string_view, 4>{"EnvBool", "EnvInt", "EnvStr", "EnvFloat"});
      if (set || env_default || call_default)
        out.push_back({default_flipped,
                       fmt::format("{} becomes {}", s.before[i].text.substr(0, 40), s.after[i].text.substr(0, 40)),
                       {},
                       false});
    }
  } else if (config) {
    out.push_back({default_flipped, "a launch file sets other values", {}, false});
  }
}

void detect_env(const Sides& s, std::vector<Detection>& out) {
  std::set<std::string> before;
  for (const EnvRead& r : env_reads(s.before)) before.insert(r.name);
  for (const EnvRead& r : env_reads(s.after))
    if (!before.contains(r.name))
      out.push_back({env_gate_added, fmt::format("{} is read here now", r.name), {}, false});
}

struct Call {
  std::size_t positional = 0;
  std::set<std::string> keywords;
  std::string text;
};

// The calls of a statement: name and arguments. Nested calls are found as well.
std::multimap<std::string, Call> calls_of(Tokens t) {
  std::multimap<std::string, Call> found;
  for (std::size_t i = 0; i + 1 < t.size(); ++i) {
    if (t[i].kind != TokenKind::word || !t[i + 1].is("(")) continue;
    Call call;
    int depth = 0;
    bool fresh = true;
    for (std::size_t k = i + 1; k < t.size(); ++k) {
      if (t[k].is("(") || t[k].is("[") || t[k].is("{")) {
        if (++depth == 1) continue;
      } else if (t[k].is(")") || t[k].is("]") || t[k].is("}")) {
        if (--depth == 0) break;
      }
      if (depth == 1 && t[k].is(",")) {
        fresh = true;
        continue;
      }
      if (!fresh) continue;
      fresh = false;
      if (k + 1 < t.size() && t[k + 1].is("=") && t[k].kind == TokenKind::word)
        call.keywords.insert(std::string(t[k].text));
      else
        ++call.positional;
    }
    found.emplace(std::string(t[i].text), std::move(call));
  }
  return found;
}

void detect_arguments(const Sides& s, std::vector<Detection>& out) {
  if (s.before.empty() || s.after.empty()) return;
  const auto before = calls_of(s.before), after = calls_of(s.after);
  for (const auto& [name, call] : before) {
    if (before.count(name) != 1 || after.count(name) != 1) continue;
    const Call& now = after.find(name)->second;
    const std::size_t had = call.positional + call.keywords.size(), has = now.positional + now.keywords.size();
    if (has >= had) continue;
    std::string gone;
    for (const std::string& k : call.keywords)
      if (!now.keywords.contains(k)) gone += (gone.empty() ? "" : ", ") + k;
    const bool declared = s.before[0].is("def");
    out.push_back({argument_dropped,
                   fmt::format("{} {} {}", name, declared ? "no longer takes" : "is no longer given",
                               gone.empty() ? "an argument" : gone),
                   {},
                   false});
  }
}

// A list of what is kept or sent lost an element: only names went, and the bracket that held them is still there.
void detect_lists(const Sides& s, std::vector<Detection>& out) {
  constexpr std::array<std::string_view, 12> kStateWords{
      "transfer", "buffers", "restore", "save", "state", "states", "cache", "kv", "pools", "kinds", "key", "snapshot"};
  if (s.before.empty() || s.after.empty() || s.lost.empty() || !s.gained.empty()) return;
  const auto is = [](std::string_view text) { return [text](const Token& t) { return t.is(text); }; };
  const bool bracket =
      std::any_of(s.after.begin(), s.after.end(), is("[")) || std::any_of(s.after.begin(), s.after.end(), is("{"));
  WordSet words;
  words.add_name(s.function);
  for (const Token& t : s.before)
    if (t.kind != TokenKind::string) words.add_name(t.text);
  if (bracket && std::any_of(s.lost.begin(), s.lost.end(), is(",")) && words.has_any(kStateWords))
    out.push_back({words.has("key") ? cache_key : state_transfer, "a list lost an element", {}, false});
}

// ---- words of the catalogue ----

constexpr std::array<std::string_view, 6> kCompare{"<", "<=", ">", ">=", "==", "!="};
constexpr std::array<std::string_view, 8> kArithmetic{"+", "-", "*", "/", "%", "//", "**", "@"};

bool is_index_width(const Sides& s) {
  constexpr std::array<std::string_view, 9> kWide{"int64_t",  "int64",  "size_t", "long", "ptrdiff_t",
                                                  "uint64_t", "kInt64", "kLong",  "ll"};
  const auto wide = [&](const std::vector<Token>& t) {
    return std::count_if(t.begin(), t.end(), [&](const Token& x) { return one_of(x.text, kWide); });
  };
  return wide(s.lost) > wide(s.gained);
}

void detect_words(const Sides& s, std::vector<Detection>& out) {
  if (is_index_width(s)) out.push_back({index_width, "an index is computed in fewer bits", {}, false});
  bool compare = false, formula = false;
  WordSet changed, around;
  for (const Token& t : s.changed()) {
    compare = compare || (t.kind == TokenKind::op && one_of(t.text, kCompare));
    formula = formula || t.kind == TokenKind::number || (t.kind == TokenKind::op && one_of(t.text, kArithmetic));
    if (t.kind != TokenKind::string || t.text.size() < 24) changed.add_name(t.text), changed.add_whole(t.text);
  }
  // Of an unchanged name beside it only a changed number, operator or literal says something.
  const std::vector<Token> all = s.changed();
  const bool values_only =
      std::all_of(all.begin(), all.end(), [](const Token& t) { return t.kind == TokenKind::op || is_literal(t); });
  if (values_only)
    for (const Token& t : s.near) changed.add_name(t.text), changed.add_whole(t.text);
  for (const Tokens side : {s.before, s.after})
    for (const Token& t : side)
      if (t.kind != TokenKind::string) around.add_name(t.text);
  around.add_name(s.function);
  const bool whole = s.before.empty() || s.after.empty();
  std::set<Class> said;
  for (const WordRule& rule : word_rules()) {
    if (said.contains(rule.cls) || !changed.has_any(rule.words)) continue;
    if (!rule.context[0].empty() && !around.has_any(rule.context)) continue;
    if (rule.cls == bound && !compare && !formula) continue;
    said.insert(rule.cls);
    out.push_back(
        {rule.cls, fmt::format("{}: {}", rule.what, whole ? s.before.empty() ? "new" : "gone" : "changed"), {}, false});
  }
  if (compare && !said.contains(bound) && !whole) out.push_back({bound, "a comparison changed", {}, false});
  if (formula && said.empty() && !whole)
    out.push_back({arithmetic, "a number or operator of a formula changed", {}, false});
}

}  // namespace

Sides::Sides(const ParsedFile& file, const Change& change)
    : language(file.file->language),
      function(change.after ? file.new_source.function_of(*change.after)
                            : file.old_source.function_of(*change.before)) {
  if (change.before) before = file.old_source.tokens(*change.before);
  if (change.after) after = file.new_source.tokens(*change.after);
  const auto collect = [this](Tokens side, const std::vector<std::size_t>& positions, std::vector<Token>& out) {
    constexpr std::size_t kNear = 3;
    std::set<std::size_t> beside;
    for (const std::size_t p : positions) {
      out.push_back(side[p]);
      for (std::size_t k = p >= kNear ? p - kNear : 0; k < std::min(side.size(), p + kNear + 1); ++k) beside.insert(k);
    }
    for (const std::size_t k : beside)
      if (!std::binary_search(positions.begin(), positions.end(), k)) near.push_back(side[k]);
  };
  collect(before, change.lost, lost);
  collect(after, change.gained, gained);
}

std::vector<Token> Sides::changed() const {
  std::vector<Token> all = lost;
  all.insert(all.end(), gained.begin(), gained.end());
  return all;
}

std::vector<std::string> scale_factors(Tokens t) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < t.size(); ++i) {
    if (!is_scale(t[i])) continue;
    // self.w.scale * x: the operator stands before the whole dotted name.
    std::size_t first = i;
    while (first >= 2 && (t[first - 1].is(".") || t[first - 1].is("->") || t[first - 1].is("::"))) first -= 2;
    // scale[:, None] * x: or behind its subscript.
    std::size_t next = i + 1;
    if (next < t.size() && t[next].is("["))
      for (int depth = 0; next < t.size();) {
        depth += t[next].is("[") ? 1 : t[next].is("]") ? -1 : 0;
        ++next;
        if (depth == 0) break;
      }
    const bool before = first > 0 && one_of(t[first - 1].text, kMulOps) && t[first - 1].kind == TokenKind::op;
    const bool after =
        next < t.size() && one_of(t[next].text, kMulOps) && t[next].kind == TokenKind::op && !(i == 0 && next == 1);
    const bool call = first > 1 && t[first - 1].is("(") && one_of(t[first - 2].text, kMulCalls);
    if (before || after || call) found.push_back("scale:" + std::string(t[i].text));
  }
  return found;
}

std::string guard_key(Tokens t) {
  const auto guard = [](const Token& x) {
    return x.kind == TokenKind::word &&
           (one_of(x.text, kGuardWords) || x.text.find("CHECK") != std::string_view::npos ||
            x.text.find("ASSERT") != std::string_view::npos);
  };
  const std::size_t at = static_cast<std::size_t>(std::find_if(t.begin(), t.end(), guard) - t.begin());
  if (at >= t.size() || at > 3) return "";
  std::string key = "guard:";
  for (std::size_t i = at + 1; i < t.size(); ++i)
    if (t[i].kind != TokenKind::string && !t[i].is("(") && !t[i].is(")") && !t[i].is(","))
      key.append(t[i].text).push_back(' ');
  return key;
}

std::vector<Detection> detect(const Sides& sides, const std::function<bool(const std::string&)>& moved) {
  std::vector<Detection> out;
  detect_formats(sides, out);
  detect_scales(sides, moved, out);
  detect_guards(sides, moved, out);
  detect_defaults(sides, out);
  detect_env(sides, out);
  detect_arguments(sides, out);
  detect_lists(sides, out);
  detect_words(sides, out);
  return out;
}

}  // namespace plumb::investigator::inventory

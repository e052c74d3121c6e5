#include "investigator/inventory/gates.h"

#include <algorithm>
#include <array>

#include "investigator/inventory/words.h"

namespace plumb::investigator::inventory {
namespace {

constexpr std::array<std::string_view, 9> kReaders{"getenv",           "secure_getenv",   "environ",
                                                   "get_bool_env_var", "get_int_env_var", "EnvBool",
                                                   "EnvInt",           "env_bool",        "get_env"};
constexpr std::array<std::string_view, 12> kFlagWords{"enable", "enabled", "disable", "use",   "opt",  "experimental",
                                                      "allow",  "with",    "fuse",    "fused", "flag", "flags"};

bool one_of(std::string_view text, const auto& list) { return std::find(list.begin(), list.end(), text) != list.end(); }

bool is_env_name(std::string_view text) {
  if (text.size() < 3 || text.find('_') == std::string_view::npos) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
}

std::optional<bool> truth(const Token& t) {
  if (one_of(t.text, std::array<std::string_view, 7>{"1", "true", "True", "on", "yes", "TRUE", "y"})) return true;
  if (one_of(t.text, std::array<std::string_view, 10>{"0", "false", "False", "off", "no", "FALSE", "None", "nullptr",
                                                      "NULL", ""}))
    return false;
  return std::nullopt;
}

// Position of the variable's name in a reading, or npos.
std::size_t env_name_at(std::span<const Token> t) {
  for (std::size_t i = 0; i < t.size(); ++i)
    if (t[i].kind == TokenKind::string && is_env_name(t[i].text))
      for (std::size_t k = i; k-- > 0 && i - k <= 5;)
        if (t[k].kind == TokenKind::word && one_of(t[k].text, kReaders)) return i;
  return std::string_view::npos;
}

std::string dialect_of(std::span<const Token> t, std::size_t name) {
  const auto any = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(t.begin(), t.end(), [&](const Token& x) {
      return x.kind == TokenKind::word && std::find(words.begin(), words.end(), x.text) != words.end();
    });
  };
  const auto text = [&](std::string_view s) {
    return std::any_of(t.begin() + static_cast<std::ptrdiff_t>(name) + 1, t.end(),
                       [&](const Token& x) { return x.kind == TokenKind::string && x.text == s; });
  };
  const bool compares = std::any_of(t.begin(), t.end(), [](const Token& x) { return x.is("==") || x.is("!="); });
  if (any({"get_bool_env_var", "EnvBool", "env_bool"}) || (any({"lower", "in", "strcasecmp"}) && text("true")))
    return "words of truth";
  if (any({"int", "atoi", "stoi", "strtol", "get_int_env_var", "EnvInt"})) return "integer";
  if (compares && any({"nullptr", "NULL", "None"})) return "is set";
  if (compares && (text("1") || any({"strcmp"}))) return "is 1";
  if (compares) return "is not 0";
  if (any({"bool"}) || t[0].is("if") || t[0].is("elif") || any({"not"})) return "non-empty";
  return "";
}

// What a reading gives when the variable is not set.
std::optional<bool> default_of(std::span<const Token> t, std::size_t name) {
  std::optional<bool> value = false;  // not set and no default: falsy
  if (name + 2 < t.size() && t[name + 1].is(",")) value = truth(t[name + 2]);
  // getenv(X) != nullptr is false when not set; get(X, "1") != "0" is true.
  const bool differs =
      std::any_of(t.begin() + static_cast<std::ptrdiff_t>(name), t.end(), [](const Token& x) { return x.is("!="); });
  const bool null =
      std::any_of(t.begin(), t.end(), [](const Token& x) { return x.is("nullptr") || x.is("NULL") || x.is("None"); });
  if (differs && !null && name + 2 < t.size() && !t[name + 1].is(",")) return true;
  return value;
}

bool looks_like_flag(std::string_view name) {
  const std::vector<std::string> parts = parts_of(name);
  return parts.size() > 1 &&
         std::any_of(parts.begin(), parts.end(), [](const std::string& p) { return one_of(p, kFlagWords); });
}

}  // namespace

std::vector<EnvRead> env_reads(std::span<const Token> tokens) {
  std::vector<EnvRead> found;
  const std::size_t at = env_name_at(tokens);
  if (at != std::string_view::npos) found.push_back({std::string(tokens[at].text), dialect_of(tokens, at), 0, nullptr});
  return found;
}

Gates::Gates(const std::vector<ParsedFile>& files) {
  for (std::size_t f = 0; f < files.size(); ++f)
    if (files[f].file->role == Role::source) {
      collect(f, files[f].new_source);
      const Language language = files[f].file->language;
      if (language == Language::shell || language == Language::yaml || language == Language::toml)
        collect_launch(files[f].new_source);
    }
  for (auto& [name, gate] : by_name_)
    if (const auto it = set_.find(gate.name); it != set_.end()) gate.on = it->second, gate.set_by_launch = true;
  collect_calls(files);
}

void Gates::collect(std::size_t file, const Source& source) {
  for (const Statement& s : source.statements()) {
    const std::span<const Token> t = source.tokens(s);
    const std::size_t env = env_name_at(t);
    if (env != std::string_view::npos) {
      reads_.push_back({std::string(t[env].text), dialect_of(t, env), file, &s});
      const Gate gate{std::string(t[env].text), true, default_of(t, env), false, false};
      by_name_.try_emplace(gate.name, gate);
      for (std::size_t i = 1; i < env; ++i)
        if (t[i].is("=") && t[i - 1].kind == TokenKind::word) by_name_.try_emplace(std::string(t[i - 1].text), gate);
      if (t[0].is("return"))
        if (const std::string function = source.function_of(s); !function.empty()) by_name_.try_emplace(function, gate);
      continue;
    }
    for (std::size_t i = 0; i + 2 < t.size(); ++i) {
      const bool typed = t[i].kind == TokenKind::word && i + 4 < t.size() && t[i + 1].is(":") && t[i + 2].is("bool") &&
                         t[i + 3].is("=");
      const bool plain = t[i].kind == TokenKind::word && t[i + 1].is("=");
      const Token* value = typed ? &t[i + 4] : plain ? &t[i + 2] : nullptr;
      if (!value) continue;
      if (looks_like_flag(t[i].text) && value->kind == TokenKind::word && truth(*value))
        by_name_.try_emplace(std::string(t[i].text), Gate{std::string(t[i].text), false, truth(*value), false, false});
    }
  }
}

// NAME=1, NAME: "1" and --enable-name in a launch script or deployment file.
void Gates::collect_launch(const Source& source) {
  for (const Statement& s : source.statements()) {
    const std::span<const Token> t = source.tokens(s);
    for (std::size_t i = 0; i < t.size(); ++i) {
      if (t[i].text.starts_with("--") && t[i].text.size() > 2) {
        std::string name(t[i].text.substr(2));
        std::replace(name.begin(), name.end(), '-', '_');
        set_[name] = true;
      }
      if (i + 2 < t.size() && is_env_name(t[i].text) && (t[i + 1].is("=") || t[i + 1].is(":")) && truth(t[i + 2]))
        set_[std::string(t[i].text)] = *truth(t[i + 2]);
    }
  }
}

std::optional<Gate> Gates::in_condition(std::span<const Token> t) const {
  std::optional<Gate> found;
  for (std::size_t i = 0; i < t.size(); ++i) {
    if (t[i].kind == TokenKind::op || t[i].kind == TokenKind::number) continue;
    const auto it = by_name_.find(std::string(t[i].text));
    Gate gate;
    if (it != by_name_.end())
      gate = it->second;
    else if (t[i].kind == TokenKind::word && looks_like_flag(t[i].text) && !(i + 1 < t.size() && t[i + 1].is("(")))
      gate = Gate{std::string(t[i].text), is_env_name(t[i].text), std::nullopt, false, false};
    else
      continue;
    for (std::size_t k = i; k-- > 0 && i - k <= 3;) {
      if (t[k].is("not") || t[k].is("!")) gate.inverted = true;
      if (!t[k].is(".") && t[k].kind == TokenKind::op) break;
    }
    if (!found || (gate.runs() == std::optional(false) && found->runs() != std::optional(false))) found = gate;
  }
  return found;
}

std::optional<Gate> Gates::around(const Source& source, const Statement& s) const {
  std::optional<Gate> best;
  for (int at = s.parent; at >= 0; at = source.statements()[static_cast<std::size_t>(at)].parent) {
    const std::span<const Token> t = source.tokens(source.statements()[static_cast<std::size_t>(at)]);
    if (!t[0].is("if") && !t[0].is("elif") && !(t.size() > 1 && t[0].is("else") && t[1].is("if"))) continue;
    if (const auto gate = in_condition(t); gate && (!best || gate->runs() == std::optional(false))) best = gate;
  }
  return best;
}

void Gates::collect_calls(const std::vector<ParsedFile>& files) {
  for (const ParsedFile& file : files)
    for (const Statement& s : file.new_source.statements())
      if (file.new_source.function_header(s) == &s) {
        const std::string name = file.new_source.function_of(s);
        calls_.try_emplace(name.substr(name.rfind('.') + 1));
      }
  // Twice: a function called only by gated functions is gated too.
  for (int round = 0; round < 2; ++round) {
    const std::unordered_map<std::string, Calls> earlier = calls_;
    for (auto& [name, calls] : calls_) calls = {};
    for (const ParsedFile& file : files) {
      if (file.file->role != Role::source) continue;
      for (const Statement& s : file.new_source.statements()) {
        const std::span<const Token> t = file.new_source.tokens(s);
        if (file.new_source.function_header(s) == &s) continue;
        for (std::size_t i = 0; i + 1 < t.size(); ++i) {
          if (t[i].kind != TokenKind::word ||
              !(t[i + 1].is("(") || t[i + 1].is("<<") || t[i + 1].is("<") || t[i + 1].is("[")))
            continue;
          const auto it = calls_.find(std::string(t[i].text));
          if (it == calls_.end()) continue;
          std::optional<Gate> gate = around(file.new_source, s);
          if (!gate && t[0].is("if")) gate = in_condition(t.first(i));
          const std::string caller = file.new_source.function_of(s);
          if (const auto c = earlier.find(caller.substr(caller.rfind('.') + 1));
              !gate && c != earlier.end() && !c->second.ungated)
            gate = c->second.gate;
          if (gate)
            it->second.gate = gate;
          else
            it->second.ungated = true;
        }
      }
    }
  }
}

std::optional<Gate> Gates::of(const Source& source, const Statement& s, bool own_condition) const {
  if (const auto gate = around(source, s)) return gate;
  if (const auto t = source.tokens(s); own_condition && (t[0].is("if") || t[0].is("elif")))
    if (const auto gate = in_condition(t)) return gate;
  const std::string function = source.function_of(s);
  const auto it = calls_.find(function.substr(function.rfind('.') + 1));
  return it != calls_.end() && !it->second.ungated ? it->second.gate : std::nullopt;
}

}  // namespace plumb::investigator::inventory

#include "model/python_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <unordered_map>
#include <utility>

namespace plumb {
namespace {

constexpr int kMaxDepth = 100;

// A surrogate gets the three bytes that UTF-8 would give it: they occur in no valid text, so that it can be told.
void append_utf8(std::string& out, std::uint32_t code) {
  const auto byte = [&](std::uint32_t bits) { out += static_cast<char>(bits); };
  const auto tail = [&](int shift) { byte(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    tail(6);
  } else {
    byte(0xF0 | code >> 18);
    tail(12);
    tail(6);
  }
  tail(0);
}

bool has_surrogate(std::string_view text) {
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    if (static_cast<unsigned char>(text[i]) == 0xED && static_cast<unsigned char>(text[i + 1]) >= 0xA0) return true;
  return false;
}

// The code point that starts at `at`, and its length.
std::pair<std::uint32_t, std::size_t> code_point(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  std::uint32_t code = lead & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length && at + i < text.size(); ++i)
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  return {code, std::min(length, text.size() - at)};
}

void append_unit(std::string& out, std::uint32_t unit) { out += fmt::format("\\u{:04x}", unit); }

// Escapes what is not ASCII in an output that has no other place for it than inside strings.
std::string ascii(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = code_point(text, at);
    at += length;
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x10000) {
      append_unit(out, code);
    } else {
      append_unit(out, 0xD800 + ((code - 0x10000) >> 10));
      append_unit(out, 0xDC00 + ((code - 0x10000) & 0x3FF));
    }
  }
  return out;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out + '"';
}

// One document, read and printed in one walk.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  struct Value {
    bool is_string = false;
    std::string text;  // a string's own, else JSON
  };
  using Members = std::vector<std::pair<std::string, Value>>;

  Result<std::string> document() {
    std::string out;
    if (Value value; read_value(value, 0) && at_end()) {
      out = value.is_string ? quoted(value.text) : std::move(value.text);
      return has_surrogate(out) ? ascii(out) : out;
    }
    return complaint();
  }

  Result<std::vector<JsonMember>> object() {
    Members members;
    skip_space();
    if (!next_is('{')) wrong("not an object");
    if (failed() || !read_members(members, 0) || !at_end()) return complaint();
    std::vector<JsonMember> out;
    for (auto& [key, value] : members) {
      if (has_surrogate(key) || (value.is_string && has_surrogate(value.text)))
        return error("not UTF-8: a lone surrogate");
      if (!value.is_string && has_surrogate(value.text)) value.text = ascii(value.text);
      out.push_back({std::move(key), value.is_string, std::move(value.text)});
    }
    return out;
  }

 private:
  bool wrong(const char* what) {
    if (what_ == nullptr) what_ = what;
    return false;
  }
  bool failed() const { return what_ != nullptr; }
  tl::unexpected<Error> complaint() const { return error("byte {}: {}", at_, what_); }

  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size() || wrong("something follows the value");
  }

  bool read_value(Value& out, int depth) {
    if (depth > kMaxDepth) return wrong("nested too deep");
    skip_space();
    if (at_ == text_.size()) return wrong("a value is missing");
    if (next_is('"')) {
      out.is_string = true;
      return read_string(out.text);
    }
    if (next_is('{')) return read_object(out.text, depth);
    if (next_is('[')) return read_array(out.text, depth);
    for (const std::string_view word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (!take(word)) continue;
      out.text = word;
      return true;
    }
    return read_number(out.text);
  }

  static void append(std::string& out, const Value& value) { out += value.is_string ? quoted(value.text) : value.text; }

  bool read_array(std::string& out, int depth) {
    ++at_;
    out = "[";
    skip_space();
    if (take("]")) {
      out += ']';
      return true;
    }
    while (true) {
      Value item;
      if (!read_value(item, depth + 1)) return false;
      if (out.size() > 1) out += ", ";
      append(out, item);
      skip_space();
      if (take("]")) break;
      if (!take(",")) return wrong("expected , or ]");
    }
    out += ']';
    return true;
  }

  bool read_members(Members& members, int depth) {
    std::unordered_map<std::string, std::size_t> index;
    ++at_;
    skip_space();
    if (take("}")) return true;
    while (true) {
      skip_space();
      std::string key;
      if (!next_is('"')) return wrong("expected a key");
      if (!read_string(key)) return false;
      skip_space();
      if (!take(":")) return wrong("expected :");
      Value value;
      if (!read_value(value, depth + 1)) return false;
      if (const auto [same, is_new] = index.try_emplace(key, members.size()); is_new)
        members.emplace_back(std::move(key), std::move(value));
      else
        members[same->second].second = std::move(value);
      skip_space();
      if (take("}")) return true;
      if (!take(",")) return wrong("expected , or }");
    }
  }

  bool read_object(std::string& out, int depth) {
    Members members;
    if (!read_members(members, depth)) return false;
    out = "{";
    for (const auto& [key, value] : members) {
      if (out.size() > 1) out += ", ";
      out += quoted(key) + ": ";
      append(out, value);
    }
    out += '}';
    return true;
  }

  bool read_unit(std::uint32_t& unit) {
    if (at_ + 4 > text_.size()) return wrong("a \\u escape is cut off");
    const char* const end = text_.data() + at_ + 4;
    if (std::from_chars(text_.data() + at_, end, unit, 16).ptr != end) return wrong("a \\u escape has no four digits");
    at_ += 4;
    return true;
  }

  bool read_escape(std::string& out) {
    constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) return wrong("an escape is cut off");
    const char c = text_[at_++];
    if (const std::size_t which = kFrom.find(c); which != kFrom.npos) {
      out += kTo[which];
      return true;
    }
    std::uint32_t code = 0;
    if (c != 'u') return wrong("unknown escape");
    if (!read_unit(code)) return false;
    if (0xD800 <= code && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      const std::size_t before = at_;
      std::uint32_t low = 0;
      at_ += 2;
      if (!read_unit(low)) return false;
      if (0xDC00 <= low && low <= 0xDFFF)
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      else
        at_ = before;
    }
    append_utf8(out, code);
    return true;
  }

  bool read_string(std::string& out) {
    ++at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) return wrong("a control character in a string");
      ++at_;
      if (c == '"') return true;
      if (c != '\\')
        out += c;
      else if (!read_escape(out))
        return false;
    }
    return wrong("a string without end");
  }

  std::size_t skip_digits() {
    const std::size_t before = at_;
    while (at_ < text_.size() && '0' <= text_[at_] && text_[at_] <= '9') ++at_;
    return at_ - before;
  }

  bool read_number(std::string& out) {
    const std::size_t begin = at_;
    take("-");
    if (!take("0") && skip_digits() == 0) return wrong("not a value");
    const std::size_t whole_end = at_;
    if (next_is('.')) {
      ++at_;
      if (skip_digits() == 0) at_ = whole_end;
    }
    if (const std::size_t before = at_; next_is('e') || next_is('E')) {
      ++at_;
      if (next_is('+') || next_is('-')) ++at_;
      if (skip_digits() == 0) at_ = before;
    }
    out = text_.substr(begin, at_ - begin);
    if (at_ == whole_end) {
      if (out == "-0") out = "0";
    } else {
      out = python_float(std::strtod(out.c_str(), nullptr));
    }
    return true;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  const char* what_ = nullptr;
};

}  // namespace

Result<std::string> python_json(std::string_view text) { return Reader(text).document(); }

Result<std::vector<JsonMember>> python_json_members(std::string_view text) { return Reader(text).object(); }

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t mark = text.find('e');
  const int exponent = std::atoi(text.data() + mark + 1);
  const bool negative = text[0] == '-';
  std::string digits(text.substr(negative ? 1 : 0, mark - (negative ? 1 : 0)));
  std::erase(digits, '.');
  const std::size_t count = digits.size();
  std::string out;
  if (exponent < -4 || exponent >= 16) {
    out = digits.substr(0, 1) + (count > 1 ? "." + digits.substr(1) : "");
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out = "0." + std::string(static_cast<std::size_t>(-exponent) - 1, '0') + digits;
  } else if (const auto whole = static_cast<std::size_t>(exponent) + 1; count <= whole) {
    out = digits + std::string(whole - count, '0') + ".0";
  } else {
    out = digits.insert(whole, ".");
  }
  return negative ? "-" + out : out;
}

void append_json_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view kFrom = "\"\\\b\f\n\r\t", kTo = "\"\\bfnrt";
  for (const char c : text) {
    if (const std::size_t which = kFrom.find(c); which != kFrom.npos)
      (out += '\\') += kTo[which];
    else if (static_cast<unsigned char>(c) < 0x20)
      append_unit(out, static_cast<unsigned char>(c));
    else
      out += c;
  }
}

}  // namespace plumb

#include "server/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace plumb::server {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

void Utf8Stream::step(unsigned char byte, std::string& out) {
  if (missing_ > 0) {
    if (low_ <= byte && byte <= high_) {
      open_ += static_cast<char>(byte);
      low_ = 0x80;
      high_ = 0xbf;
      if (--missing_ == 0) out += std::exchange(open_, {});
      return;
    }
    open_.clear();
    missing_ = 0;
    low_ = 0x80;
    high_ = 0xbf;
    out += kReplacement;
  }
  if (byte < 0x80) {
    out += static_cast<char>(byte);
  } else if (byte < 0xc2 || byte > 0xf4) {
    out += kReplacement;
  } else {
    missing_ = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    if (byte == 0xe0) low_ = 0xa0;
    if (byte == 0xed) high_ = 0x9f;
    if (byte == 0xf0) low_ = 0x90;
    if (byte == 0xf4) high_ = 0x8f;
    open_ = static_cast<char>(byte);
  }
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char byte : bytes) step(static_cast<unsigned char>(byte), out);
  return out;
}

std::string Utf8Stream::finish() {
  const bool unfinished = missing_ > 0;
  *this = {};
  return unfinished ? std::string(kReplacement) : std::string();
}

std::size_t count_characters(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    CHECK(!stop.empty());
    Pattern pattern{.text = std::move(stop), .border = {0, 0}};
    for (std::size_t i = 1; i < pattern.text.size(); ++i) {
      std::size_t k = pattern.border[i];
      while (k > 0 && pattern.text[k] != pattern.text[i]) k = pattern.border[k];
      pattern.border.push_back(pattern.text[k] == pattern.text[i] ? k + 1 : 0);
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (matched()) return {};
  if (patterns_.empty()) return std::string(text);
  for (const char c : text) {
    held_ += c;
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      Pattern& pattern = patterns_[p];
      while (pattern.length > 0 && pattern.text[pattern.length] != c) pattern.length = pattern.border[pattern.length];
      if (pattern.text[pattern.length] == c) ++pattern.length;
      if (pattern.length < pattern.text.size()) continue;
      if (!matched() || pattern.text.size() > match().size()) match_ = static_cast<int>(p);
    }
    if (!matched()) continue;
    held_.resize(held_.size() - match().size());
    return std::exchange(held_, {});
  }
  std::size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.length);
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopMatcher::finish() {
  for (Pattern& pattern : patterns_) pattern.length = 0;
  return std::exchange(held_, {});
}

}  // namespace plumb::server

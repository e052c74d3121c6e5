#include "investigator/progress.h"

#include <algorithm>

#include <unistd.h>

namespace plumb::investigator {
namespace {

constexpr std::size_t kBarWidth = 32;
constexpr std::size_t kTitleWidth = 60;
constexpr std::size_t kAnswerWidth = 9;

char mark_of(Grade grade) {
  switch (grade) {
    case Grade::right:
      return '.';
    case Grade::wrong:
      return 'x';
    case Grade::no_answer:
      return 'o';
    case Grade::refused:
      return 'r';
    case Grade::infrastructure:
      return '?';
  }
  return '?';
}

std::string clock_of(double seconds) {
  const int whole = static_cast<int>(seconds);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

// The text in exactly `width` columns, each character taken for one.
std::string fitted(const std::string& text, std::size_t width) {
  std::size_t columns = 0;
  std::string out;
  std::size_t before_dots = 0;  // bytes of the first width - 3 characters
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (begins && columns == width) return out.substr(0, before_dots) + "...";
    if (begins && columns == width - 3) before_dots = out.size();
    columns += begins ? 1 : 0;
    out += c;
  }
  return out + std::string(width - columns, ' ');
}

}  // namespace

ProgressPrinter::ProgressPrinter(std::FILE* stream) : stream_(stream), terminal_(isatty(fileno(stream)) == 1) {}

void ProgressPrinter::operator()(const Progress& p) {
  switch (p.kind) {
    case Progress::Kind::launch:
      // A launch that goes on with more trials keeps its line.
      if (title_ != p.label) marks_.clear();
      title_ = p.label;
      bar(p);
      break;
    case Progress::Kind::trial:
      marks_ += mark_of(p.grade);
      bar(p);
      break;
    case Progress::Kind::launch_end:
      if (!explained_)
        std::fprintf(stream_, "%smarks: . right  x wrong  o no answer  r refused  ? no reply (counts for nothing)\n",
                     terminal_ ? "\r\033[K" : "");
      explained_ = true;
      std::fprintf(stream_, "%s%s %3d  %s %s %3d/%-3d %s\n", terminal_ ? "\r\033[K" : "", clock_of(p.elapsed_s).c_str(),
                   p.launches, fitted(p.text, kTitleWidth).c_str(), fitted(p.answer, kAnswerWidth).c_str(), p.right,
                   p.done, marks_.c_str());
      marks_.clear();
      title_.clear();
      break;
    case Progress::Kind::note:
      std::fprintf(stream_, "%s%s      %s\n", terminal_ ? "\r\033[K" : "", clock_of(p.elapsed_s).c_str(),
                   p.text.c_str());
      break;
  }
  std::fflush(stream_);
}

void ProgressPrinter::bar(const Progress& p) {
  if (!terminal_) return;
  const std::size_t total = static_cast<std::size_t>(std::max(1, p.total));
  const std::size_t filled = std::min(kBarWidth, kBarWidth * static_cast<std::size_t>(p.done) / total);
  std::fprintf(stream_, "\r\033[K%s %3d  %s [%s%s] %d/%d right", clock_of(p.elapsed_s).c_str(), p.launches,
               fitted(p.text, kTitleWidth).c_str(), std::string(filled, '=').c_str(),
               std::string(kBarWidth - filled, ' ').c_str(), p.right, p.done);
}

}  // namespace plumb::investigator

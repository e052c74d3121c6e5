#include "faults/sensitivity/journal.h"

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/durable_file.h"

namespace plumb::faults {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 256u << 20;

json trials_json(const std::vector<TrialDifference>& trials) {
  json array = json::array();
  for (const TrialDifference& t : trials)
    array.push_back(
        {t.lost, t.won, t.answers_missing, t.answers_more, t.nats, t.d, t.kl, t.decode_gap, t.differs ? 1 : 0});
  return array;
}

std::vector<TrialDifference> trials_of(const json& array) {
  std::vector<TrialDifference> trials;
  for (const json& t : array)
    trials.push_back({.lost = t.at(0).get<int>(),
                      .won = t.at(1).get<int>(),
                      .answers_missing = t.at(2).get<int>(),
                      .answers_more = t.at(3).get<int>(),
                      .nats = t.at(4).get<double>(),
                      .d = t.at(5).get<double>(),
                      .kl = t.at(6).get<double>(),
                      .decode_gap = t.at(7).get<double>(),
                      .differs = t.at(8).get<int>() != 0});
  return trials;
}

// One write, so that lines of several processes do not mix, then to disk.
Result<void> append_line(const std::filesystem::path& file, const std::string& line) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return error("{}: {}", file.string(), std::strerror(errno));
  const ssize_t written = ::write(fd, line.data(), line.size());
  const bool good = written == static_cast<ssize_t>(line.size()) && ::fdatasync(fd) == 0;
  const int reason = errno;
  ::close(fd);
  if (!good) return error("{}: cannot be written: {}", file.string(), std::strerror(reason));
  return {};
}

}  // namespace

std::string trials_text(const std::vector<TrialDifference>& trials) { return trials_json(trials).dump(); }

Result<std::vector<TrialDifference>> parse_trials(const std::string& text) {
  try {
    return trials_of(json::parse(text));
  } catch (const json::exception& e) {
    return error("trials: {}", e.what());
  }
}

Result<Journal> Journal::open(const std::filesystem::path& file, const std::string& subject) {
  Journal journal;
  journal.file_ = file;
  const std::string head = json{{"subject", subject}}.dump();
  if (!std::filesystem::exists(file)) {
    if (auto begun = append_line(file, head + "\n"); !begun) return tl::unexpected(begun.error());
    return journal;
  }
  const auto text = read_file(file, kMostBytes);
  if (!text) return tl::unexpected(text.error());
  std::istringstream lines(*text);
  std::string line;
  if (!std::getline(lines, line) || line != head)
    return error("{}: is the journal of another checkpoint or of other questions; remove it to measure anew",
                 file.string());
  // A kill can have cut the last line short; the next one then begins a line of its own.
  if (!text->ends_with('\n'))
    if (auto ended = append_line(file, "\n"); !ended) return tl::unexpected(ended.error());
  while (std::getline(lines, line)) {
    const json entry = json::parse(line, nullptr, false);
    if (entry.is_discarded() || !entry.is_object()) continue;
    const CellKey key{entry.at("plant").get<std::string>(), entry.at("tokens").get<std::int64_t>()};
    journal.cells_[key][entry.at("group").get<std::size_t>()] = trials_of(entry.at("trials"));
  }
  return journal;
}

const std::map<std::size_t, std::vector<TrialDifference>>* Journal::find(const CellKey& cell) const {
  const auto found = cells_.find(cell);
  return found == cells_.end() ? nullptr : &found->second;
}

Result<void> append_group(const std::filesystem::path& journal, const CellKey& cell, std::size_t group,
                          const std::vector<TrialDifference>& trials) {
  const json entry{{"plant", cell.first}, {"tokens", cell.second}, {"group", group}, {"trials", trials_json(trials)}};
  return append_line(journal, entry.dump() + "\n");
}

}  // namespace plumb::faults

#include "investigator/recorded_trials.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "investigator/probes.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kTitle = "plumb recorded trials";
constexpr std::size_t kMostQuestions = 1000;

// What a line holds that we would not have written.
struct Foreign {
  std::string what;
};

Recording head_of(const Json& j) {
  if (j.value("title", "") != kTitle) throw Foreign{"it does not begin as a recording of plumb does"};
  if (j.at("version") != kVersion) throw Foreign{fmt::format("it has another version than {}", kVersion)};
  Recording r;
  r.model_hash = j.at("model_hash");
  r.seed = j.at("seed");
  r.cells = j.at("cells").get<std::vector<std::string>>();
  for (const std::string& cell : r.cells)
    if (const auto probe = probe_of(cell); !probe) throw Foreign{probe.error().message};
  r.questions = j.at("questions");
  r.launches = j.at("launches");
  if (r.cells.empty() || r.questions < 1 || r.questions > static_cast<int>(kMostQuestions) || r.launches < 1)
    throw Foreign{"it asks nothing"};
  return r;
}

RecordedLaunch launch_of(const Json& j, const Recording& head) {
  RecordedLaunch l;
  l.plant = {j.at("kind"), j.at("form"), j.at("host"), j.at("side")};
  if (l.plant.side != "on" && l.plant.side != "off" && l.plant.side != "step")
    throw Foreign{fmt::format("'{}' is no side", l.plant.side)};
  l.number = j.at("launch");
  l.seconds = j.at("seconds");
  for (const auto& [cell, list] : j.at("marks").items()) {
    auto marks = list.get<std::vector<std::string>>();
    const bool known = std::find(head.cells.begin(), head.cells.end(), cell) != head.cells.end();
    if (!known || marks.size() != kRecordedSettings) throw Foreign{fmt::format("its marks of '{}'", cell)};
    for (const std::string& m : marks)
      if ((!m.empty() && m.size() != static_cast<std::size_t>(head.questions)) ||
          m.find_first_not_of(".x?") != std::string::npos)
        throw Foreign{fmt::format("'{}' are no {} marks", m, head.questions)};
    l.marks[cell] = std::move(marks);
  }
  if (l.marks.size() != head.cells.size()) throw Foreign{"it lacks cells"};
  return l;
}

}  // namespace

RecordedSetting recorded_setting(std::size_t index) {
  return {.host_on = index % 2 == 0, .others_deployed = index < kRecordedSettings / 2};
}

bool Recording::holds(const RecordedPlant& plant, int launch) const {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const RecordedLaunch& l) { return l.plant == plant && l.number == launch; });
}

std::string recording_head(const Recording& r) {
  return Json{{"title", kTitle}, {"version", kVersion},      {"model_hash", r.model_hash},
              {"seed", r.seed},  {"questions", r.questions}, {"launches", r.launches},
              {"cells", r.cells}}
             .dump() +
         "\n";
}

std::string recorded_line(const RecordedLaunch& l) {
  return Json{{"kind", l.plant.kind}, {"form", l.plant.form}, {"host", l.plant.host}, {"side", l.plant.side},
              {"launch", l.number},   {"marks", l.marks},     {"seconds", l.seconds}}
             .dump() +
         "\n";
}

Result<Recording> parse_recording(const std::string& text, const std::string& name) {
  Recording r;
  std::size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    try {
      const Json j = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                 text.begin() + static_cast<std::ptrdiff_t>(end));
      if (line == 1)
        r = head_of(j);
      else
        r.rows.push_back(launch_of(j, r));
    } catch (const Foreign& foreign) {
      return error("{}:{}: {}", name, line, foreign.what);
    } catch (const Json::exception&) {
      return error("{}:{}: this is no line of a recording; record anew with plumb bench isolate --record", name, line);
    }
    begin = end + 1;
  }
  if (r.cells.empty()) return error("{}: holds no recording", name);
  return r;
}

Result<Recording> read_recording(const std::filesystem::path& file) {
  const auto text = read_file(file);
  if (!text) return tl::unexpected(text.error());
  return parse_recording(*text, file.string());
}

}  // namespace plumb::investigator

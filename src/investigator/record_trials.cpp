#include "investigator/record_trials.h"

#include <chrono>
#include <fstream>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/durable_file.h"
#include "base/rng.h"
#include "investigator/investigate.h"
#include "investigator/run_program.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Result<std::vector<std::string>> recorded_cells() {
  auto cells = cells_of("all", {});
  if (!cells) return cells;
  std::erase_if(*cells, [](const std::string& cell) { return is_weak(cell); });
  return cells;
}

// The demo's deployment with a plant that is named instead of dealt.
Result<Deployment> deployment_with(const RecordOptions& options, const RecordedPlant& plant) {
  auto d = parse_deployment(demo_deployment(options.deployed, ""), "the demo's deployment");
  if (!d) return d;
  ProcessSpec& server = d->processes.front();
  server.env.clear();
  const std::string named = plant.kind == "none" ? plant.kind : plant.kind + "/" + plant.form;
  server.command.insert(server.command.end(), {"--plant", named});
  return d;
}

Variant variant_of(const Deployment& d, const RecordedPlant& plant, const RecordedSetting& setting) {
  Variant v = setting.others_deployed ? as_deployed(d) : Variant(d.switches.size(), false);
  for (std::size_t s = 0; s < v.size(); ++s)
    if (d.switches[s].name == plant.host) v[s] = setting.host_on;
  return v;
}

// One plant's server: started once for all settings that requests can turn.
class Asker {
 public:
  Asker(const RecordOptions& options, const Deployment& deployment, const RecordedPlant& plant, std::int64_t id)
      : options_(options), deployment_(deployment), plant_(plant), id_(id), world_(deployment, options.logs, {}) {}

  Result<std::string> ask(const std::string& cell, const RecordedSetting& setting) {
    const Variant wanted = variant_of(deployment_, plant_, setting);
    if (auto ready = go_to(wanted); !ready) return tl::unexpected(ready.error());
    std::string marks;
    for (int i = 0; i < options_.questions; ++i) {
      const ItemId item{cell, derive_seed(options_.seed, fmt::format("recorded/{}/{}", cell, i))};
      const TrialRecord t = run_trial(world_, item, Wording::v4, shape_of(deployment_), world_.now_s() + kAskTimeoutS);
      marks += t.grade == Grade::infrastructure ? '?' : is_failure(t.grade) ? 'x' : '.';
      std::string why;
      if (t.grade == Grade::infrastructure && !world_.alive(why))
        return error("{} ({}): its server ended: {}", plant_.kind, plant_.form, why);
    }
    return marks;
  }

  Result<std::string> model_hash() {
    std::string hash = world_.served_model().hash;
    if (hash.empty())
      return error("{}: its server does not tell the hash of its model", options_.deployed.model.string());
    return hash;
  }

  Result<void> go_to(const Variant& wanted) {
    if (wanted == variant_) return {};
    if (!variant_.empty() && same_processes(deployment_, variant_, wanted)) {
      world_.turn(wanted);
    } else {
      if (auto stopped = world_.stop(); !stopped) return stopped;
      if (const auto ready = world_.launch(wanted, id_); !ready)
        return error("{} ({}): {}", plant_.kind, plant_.form, ready.error().message);
    }
    variant_ = wanted;
    return {};
  }

  const Variant deployed() const { return as_deployed(deployment_); }

 private:
  const RecordOptions& options_;
  const Deployment& deployment_;
  const RecordedPlant& plant_;
  std::int64_t id_;
  LaunchedWorld world_;
  Variant variant_;
};

Result<void> append(const std::filesystem::path& file, const std::string& line) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return error("{}: cannot be written", file.string());
  const bool done = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && ::fsync(fd) == 0;
  ::close(fd);
  return done ? Result<void>{} : Result<void>(error("{}: cannot be written", file.string()));
}

Result<std::string> model_hash_of(const RecordOptions& options) {
  const RecordedPlant nothing;
  const auto d = deployment_with(options, nothing);
  if (!d) return tl::unexpected(d.error());
  Asker asker(options, *d, nothing, 0);
  if (auto ready = asker.go_to(asker.deployed()); !ready) return tl::unexpected(ready.error());
  return asker.model_hash();
}

// What the file holds already, or a new file with its head alone.
Result<Recording> begin_or_resume(const RecordOptions& options) {
  Recording wanted;
  const auto cells = recorded_cells();
  if (!cells) return tl::unexpected(cells.error());
  const auto hash = model_hash_of(options);
  if (!hash) return tl::unexpected(hash.error());
  wanted.model_hash = *hash;
  wanted.seed = options.seed;
  wanted.cells = *cells;
  wanted.questions = options.questions;
  wanted.launches = options.launches;
  if (std::error_code ignored; std::filesystem::exists(options.file, ignored)) {
    auto before = read_recording(options.file);
    if (!before) return before;
    if (recording_head(*before) != recording_head(wanted))
      return error("{}: was recorded of another model or with other options; remove it, or record into another file",
                   options.file.string());
    wanted.rows = std::move(before->rows);
  }
  // Anew as a whole: a line that was cut off would spoil the next one.
  std::string text = recording_head(wanted);
  for (const RecordedLaunch& l : wanted.rows) text += recorded_line(l);
  if (auto written = write_file_durably(options.file, text); !written) return tl::unexpected(written.error());
  return wanted;
}

Result<RecordedLaunch> record_one(const RecordOptions& options, const Recording& recording, const RecordedPlant& plant,
                                  int number) {
  const auto d = deployment_with(options, plant);
  if (!d) return tl::unexpected(d.error());
  Asker asker(options, *d, plant, static_cast<std::int64_t>(recording.rows.size()) + 1);
  const double begin_s = now_s();
  auto launch = record_launch(plant, number, recording.cells,
                              [&](const std::string& cell, const RecordedSetting& s) { return asker.ask(cell, s); });
  constexpr double kTenths = 10;
  if (launch) launch->seconds = std::round(kTenths * (now_s() - begin_s)) / kTenths;
  return launch;
}

}  // namespace

Result<std::vector<RecordedPlant>> plants_of(const std::filesystem::path& plumb_faulty) {
  constexpr double kTimeoutS = 60;
  const auto listed =
      run_program({.argv = {plumb_faulty.string(), "faults", "--json"}, .env = {}, .cwd = {}}, kTimeoutS);
  if (!listed) return tl::unexpected(listed.error());
  const Json table = Json::parse(listed->text, nullptr, false);
  if (!listed->ok() || !table.is_object() || !table.contains("plants"))
    return error("{} faults --json: does not list what it can plant", plumb_faulty.string());
  std::vector<RecordedPlant> plants{{}};
  try {
    for (const Json& p : table["plants"]) {
      const std::string side = p.at("side");
      plants.push_back(
          {p.at("kind"), p.at("form"), side == "step" ? std::string() : p.at("host").get<std::string>(), side});
    }
  } catch (const Json::exception&) {
    return error("{} faults --json: a plant lacks kind, form, host or side", plumb_faulty.string());
  }
  return plants;
}

Result<RecordedLaunch> record_launch(const RecordedPlant& plant, int number, const std::vector<std::string>& cells,
                                     const RecordedAsk& ask) {
  RecordedLaunch launch{plant, number, 0, {}};
  for (const std::string& cell : cells) launch.marks[cell].resize(kRecordedSettings);
  for (std::size_t i = 0; i < kRecordedSettings; ++i) {
    const RecordedSetting setting = recorded_setting(i);
    if (plant.host.empty() && !setting.host_on) continue;
    const bool good = !plant.host.empty() && setting.host_on == (plant.side == "off");
    if (good && number > 1) continue;
    for (const std::string& cell : cells) {
      auto marks = ask(cell, setting);
      if (!marks) return tl::unexpected(marks.error());
      launch.marks[cell][i] = std::move(*marks);
    }
  }
  return launch;
}

Result<Recording> record_trials(const RecordOptions& options) {
  std::error_code failed;
  std::filesystem::create_directories(options.logs, failed);
  if (failed) return error("{}: cannot be created: {}", options.logs.string(), failed.message());
  auto recording = begin_or_resume(options);
  if (!recording) return recording;
  // Every plant once before any a second time: what an interruption leaves is of all kinds.
  for (int number = 1; number <= options.launches; ++number)
    for (std::size_t p = 0; p < options.plants.size(); ++p) {
      const RecordedPlant& plant = options.plants[p];
      if (recording->holds(plant, number)) continue;
      auto launch = record_one(options, *recording, plant, number);
      if (!launch) return tl::unexpected(launch.error());
      if (auto written = append(options.file, recorded_line(*launch)); !written) return tl::unexpected(written.error());
      if (options.say)
        options.say(fmt::format("{}/{} {} {} launch {}: {:.1f} s", p + 1, options.plants.size(), plant.kind, plant.form,
                                number, launch->seconds));
      recording->rows.push_back(std::move(*launch));
    }
  return recording;
}

}  // namespace plumb::investigator

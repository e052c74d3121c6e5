#include "investigator/environment.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>

#include "base/version.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, std::string Environment::*>, 7> kFields{{
    {"date", &Environment::date},
    {"cpu", &Environment::cpu},
    {"os", &Environment::os},
    {"plumb", &Environment::plumb},
    {"commit", &Environment::commit},
    {"model", &Environment::model},
    {"model_hash", &Environment::model_hash},
}};

// What follows `key` and `separator` in the first line of a file that begins with the key.
std::string field_of(const char* file, const std::string& key, char separator) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t at = line.find(separator);
    if (!line.starts_with(key) || at == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) return {};
    return line.substr(begin, line.find_last_not_of(" \t\"") - begin + 1);
  }
  return {};
}

std::string cpu_here() {
  const std::string model = field_of("/proc/cpuinfo", "model name", ':');
  const unsigned cores = std::thread::hardware_concurrency();
  return fmt::format("{}, {} {}", model.empty() ? "processor" : model, cores, cores == 1 ? "core" : "cores");
}

std::string os_here() {
  utsname kernel{};
  if (::uname(&kernel) != 0) return field_of("/etc/os-release", "PRETTY_NAME", '=');
  const std::string name = field_of("/etc/os-release", "PRETTY_NAME", '=');
  return fmt::format("{}{}{} {}", name, name.empty() ? "" : ", ", kernel.sysname, kernel.release);
}

}  // namespace

Environment environment_here() {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  Environment e;
  e.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", now);
  e.cpu = cpu_here();
  e.os = os_here();
  e.plumb = kPlumbVersion;
  if (const char* commit = std::getenv("PLUMB_COMMIT"); commit != nullptr) e.commit = commit;
  return e;
}

std::string environment_json(const Environment& environment) {
  Json json = Json::object();
  for (const auto& [name, field] : kFields) json[name] = environment.*field;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Environment> parse_environment(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return error("is no JSON object");
  Environment e;
  for (const auto& [name, field] : kFields) {
    if (!json.contains(name) || !json[name].is_string()) return error("has no text \"{}\"", name);
    e.*field = json[name].get<std::string>();
  }
  return e;
}

}  // namespace plumb::investigator

#include "investigator/deployment_check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include <fmt/ranges.h>
#include <regex.h>

#include "base/check.h"
#include "investigator/supervisor.h"

namespace plumb::investigator {
namespace {

constexpr std::string_view kPortMark = "{port:";
constexpr std::size_t kMaxRegexBytes = 200;

template <class Range>
std::string known_names(const Range& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

template <class Range>
bool has_name(const Range& items, const std::string& name) {
  return std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
}

// Names become parts of file names, of "{port:NAME}" and of "a=on b=off".
bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 100 && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.');
         });
}

template <class Range>
Result<void> check_names(const Range& items, const std::string& kind, const Locate& locate) {
  std::set<std::string> seen;
  for (const auto& item : items) {
    const std::string where = locate(kind + " " + item.name);
    if (!is_name(item.name))
      return error("{}{} name \"{}\": use 1 to 100 letters, digits, '_', '-' and '.'", where, kind, item.name);
    if (!seen.insert(item.name).second) return error("{}{} \"{}\" exists twice: rename one", where, kind, item.name);
  }
  return {};
}

// Every text of the deployment in which {port:NAME} is replaced, with the item it belongs to.
std::vector<std::pair<std::string, std::string>> texts_with_ports(const Deployment& deployment) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const ProcessSpec& process : deployment.processes) {
    const std::string item = "process " + process.name;
    for (const std::string& argument : process.command) texts.emplace_back(item, argument);
    for (const auto& [name, value] : process.env) texts.emplace_back(item, value);
  }
  for (std::size_t i = 0; i < deployment.endpoints.size(); ++i)
    texts.emplace_back(fmt::format("endpoint {}", i), deployment.endpoints[i].url);
  for (const SwitchSpec& spec : deployment.switches)
    for (const SwitchSide* side : {&spec.off, &spec.on}) {
      for (const std::string& argument : side->args) texts.emplace_back("switch " + spec.name, argument);
      for (const auto& [name, value] : side->env) texts.emplace_back("switch " + spec.name, value);
    }
  return texts;
}

Result<std::set<std::string>> check_ports(const Deployment& deployment, const Locate& locate) {
  std::set<std::string> with_port;
  for (const auto& [item, text] : texts_with_ports(deployment)) {
    const auto names = port_names(text);
    if (!names) return error("{}{}: {}", locate(item), item, names.error().message);
    for (const std::string& name : *names) {
      if (!has_name(deployment.processes, name))
        return error("{}{}: {{port:{}}} names no process; known: {}", locate(item), item, name,
                     known_names(deployment.processes));
      with_port.insert(name);
    }
  }
  return with_port;
}

Result<void> check_processes(const Deployment& deployment, const std::set<std::string>& with_port,
                             const Locate& locate) {
  if (deployment.processes.size() > Supervisor::kMaxProcesses)
    return error("{}{} processes: at most {}", locate(""), deployment.processes.size(), Supervisor::kMaxProcesses);
  for (const ProcessSpec& process : deployment.processes) {
    const std::string where = locate("process " + process.name);
    for (const std::string& name : process.after)
      if (!has_name(deployment.processes, name))
        return error("{}process {}: after names no process \"{}\"; known: {}", where, process.name, name,
                     known_names(deployment.processes));
    if (!process.ready_http.empty() && with_port.count(process.name) == 0)
      return error(
          "{}process {}: ready.http is asked on the process's port, which nobody tells it: put {{port:{}}} into "
          "its command or env",
          where, process.name, process.name);
    if (const std::string reason = refuse_log_regex(process.ready_log_regex); !reason.empty())
      return error("{}process {}: ready.log \"{}\": {}", where, process.name, process.ready_log_regex, reason);
  }
  return {};
}

Result<void> check_start_order(const Deployment& deployment, const Locate& locate) {
  std::set<std::string> started;
  for (bool progress = true; progress;) {
    progress = false;
    for (const ProcessSpec& process : deployment.processes)
      if (started.count(process.name) == 0 &&
          std::all_of(process.after.begin(), process.after.end(),
                      [&](const std::string& name) { return started.count(name) > 0; }))
        progress = started.insert(process.name).second;
  }
  for (const ProcessSpec& process : deployment.processes)
    if (started.count(process.name) == 0)
      return error("{}process {}: its `after` waits for itself in the end (after: {}): break the circle",
                   locate("process " + process.name), process.name, fmt::join(process.after, ", "));
  return {};
}

bool is_local_url(const std::string& url) {
  for (const char* host : {"http://127.0.0.1", "http://localhost", "http://[::1]"})
    if (url.rfind(host, 0) == 0 &&
        (url.size() == std::string_view(host).size() ||
         std::string_view(":/").find(url[std::string_view(host).size()]) != std::string::npos))
      return true;
  return false;
}

Result<void> check_endpoints(const Deployment& deployment, const Locate& locate) {
  if (deployment.endpoints.empty())
    return error("{}no [[endpoint]]: add one with the url that answers requests", locate(""));
  for (std::size_t i = 0; i < deployment.endpoints.size(); ++i) {
    const EndpointSpec& endpoint = deployment.endpoints[i];
    const std::string where = locate(fmt::format("endpoint {}", i));
    if (auto url = check_url(endpoint.url); !url) return error("{}endpoint {}", where, url.error().message);
    if (!deployment.processes.empty() && !is_local_url(endpoint.url))
      return error(
          "{}endpoint url \"{}\": processes run on this machine, so the host must be 127.0.0.1, localhost or "
          "[::1]",
          where, endpoint.url);
  }
  return {};
}

Result<void> check_restart(const Deployment& deployment, const Locate& locate) {
  const bool never = deployment.restart == "never";
  if (never && !deployment.processes.empty())
    return error(
        "{}restart = \"never\" with [[process]]: plumb cannot take over processes that it did not start; leave "
        "the endpoints and remove the processes",
        locate("process " + deployment.processes[0].name));
  if (!never && deployment.processes.empty())
    return error(
        "{}no [[process]]: add the commands to start, or set restart = \"never\" for endpoints that already run",
        locate(""));
  for (const SwitchSpec& spec : deployment.switches)
    if (never && spec.apply == "restart")
      return error("{}switch {}: apply = \"restart\" cannot be used where restart = \"never\"",
                   locate("switch " + spec.name), spec.name);
  return {};
}

bool is_empty(const SwitchSide& side) { return side.env.empty() && side.args.empty() && side.body.empty(); }

Result<void> check_sides(const SwitchSpec& spec, const std::string& where) {
  if (spec.off.env == spec.on.env && spec.off.args == spec.on.args && spec.off.body == spec.on.body)
    return error("{}switch {}: both sides {}, so flipping it changes nothing: give a side env, args or body", where,
                 spec.name, is_empty(spec.on) ? "are empty" : "are equal");
  const auto launches = [](const SwitchSide& side) { return !side.env.empty() || !side.args.empty(); };
  if (spec.apply == "request" && (launches(spec.off) || launches(spec.on)))
    return error("{}switch {}: env and args need a launch, but apply is \"request\": use body, or apply = \"restart\"",
                 where, spec.name);
  if (spec.deployed_on == false && !spec.working_off)
    return error("{}switch {}: deployed = \"off\", but working_off = false says that this side does not launch", where,
                 spec.name);
  return {};
}

Result<void> check_switches(const Deployment& deployment, const Locate& locate) {
  for (const SwitchSpec& spec : deployment.switches) {
    const std::string where = locate("switch " + spec.name);
    if (auto sides = check_sides(spec, where); !sides) return sides;
    for (const std::string& glob : spec.processes)
      if (std::none_of(deployment.processes.begin(), deployment.processes.end(),
                       [&](const ProcessSpec& process) { return matches_glob(glob, process.name); }))
        return error("{}switch {}: processes \"{}\" matches no process; known: {}", where, spec.name, glob,
                     known_names(deployment.processes));
    for (const auto* names : {&spec.needs, &spec.conflicts})
      for (const std::string& name : *names) {
        const char* key = names == &spec.needs ? "requires" : "conflicts";
        if (name == spec.name) return error("{}switch {}: {} itself", where, spec.name, key);
        if (!has_name(deployment.switches, name))
          return error("{}switch {}: {} names no switch \"{}\"; known: {}", where, spec.name, key, name,
                       known_names(deployment.switches));
      }
  }
  if (auto launches = check_variant(deployment, as_deployed(deployment)); !launches)
    return error("{}as deployed: {}: correct `deployed` or the rule", locate(""), launches.error().message);
  return {};
}

}  // namespace

Result<void> check_deployment(const Deployment& deployment, const Locate& locate) {
  if (auto names = check_names(deployment.processes, "process", locate); !names) return names;
  if (auto names = check_names(deployment.switches, "switch", locate); !names) return names;
  if (auto restart = check_restart(deployment, locate); !restart) return restart;
  const auto with_port = check_ports(deployment, locate);
  if (!with_port) return tl::unexpected(with_port.error());
  if (auto processes = check_processes(deployment, *with_port, locate); !processes) return processes;
  if (auto order = check_start_order(deployment, locate); !order) return order;
  if (auto endpoints = check_endpoints(deployment, locate); !endpoints) return endpoints;
  return check_switches(deployment, locate);
}

Result<std::vector<std::string>> port_names(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find(kPortMark); at != std::string_view::npos; at = text.find(kPortMark, at + 1)) {
    const std::size_t begin = at + kPortMark.size(), end = text.find('}', begin);
    if (end == std::string_view::npos || end == begin)
      return error("\"{}\": {{port:NAME}} needs the name of a process and a closing brace", text);
    names.emplace_back(text.substr(begin, end - begin));
  }
  return names;
}

std::string fill_ports(std::string_view text, const std::function<std::string(const std::string&)>& port) {
  std::string filled;
  for (;;) {
    const std::size_t at = text.find(kPortMark);
    const std::size_t end = at == std::string_view::npos ? at : text.find('}', at);
    if (end == std::string_view::npos) return filled.append(text);
    filled.append(text.substr(0, at));
    filled += port(std::string(text.substr(at + kPortMark.size(), end - at - kPortMark.size())));
    text.remove_prefix(end + 1);
  }
}

Result<void> check_url(const std::string& url) {
  if (url.rfind("https://", 0) == 0) return error("url \"{}\": https is not supported yet, use http://", url);
  const bool plain = std::all_of(url.begin(), url.end(),
                                 [](unsigned char c) { return c > 0x20 && c != 0x7f && c != '?' && c != '#'; });
  if (url.rfind("http://", 0) != 0 || url.size() <= 7 || !plain)
    return error("url \"{}\": must be http://HOST:PORT", url);
  if (!port_of_url(fill_ports(url, [](const std::string&) { return "1"; })))
    return error("url \"{}\": must be http://HOST:PORT", url);
  if (url.size() >= 3 && url.compare(url.size() - 3, 3, "/v1") == 0)
    return error("url \"{}\": leave the /v1 away, plumb adds it", url);
  return {};
}

Result<int> port_of_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto refused = [&] { return error("\"{}\" is not http://HOST:PORT", url); };
  if (url.rfind(kScheme, 0) != 0) return refused();
  const std::string host = url.substr(kScheme.size(), url.find('/', kScheme.size()) - kScheme.size());
  const std::size_t colon = host.rfind(':'), bracket = host.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  if (host.empty() || colon == 0) return refused();
  if (!has_port) return 80;
  int port = 0;
  const auto [end, bad] = std::from_chars(host.data() + colon + 1, host.data() + host.size(), port);
  if (bad != std::errc() || end != host.data() + host.size() || port < 1 || port > 65535) return refused();
  return port;
}

bool matches_glob(std::string_view glob, std::string_view name) {
  std::size_t g = 0, n = 0, star = std::string_view::npos, star_name = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_name = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g, ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

bool acts_on(const SwitchSpec& spec, const std::string& process) {
  return spec.processes.empty() || std::any_of(spec.processes.begin(), spec.processes.end(),
                                               [&](const std::string& glob) { return matches_glob(glob, process); });
}

std::string refuse_log_regex(const std::string& pattern) {
  if (pattern.empty()) return "";
  if (pattern.size() > kMaxRegexBytes) return fmt::format("longer than {} bytes", kMaxRegexBytes);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size() && pattern[i + 1] >= '1' && pattern[i + 1] <= '9')
      return "back-references are not supported";
    if (c == '{') return "repetition counts {n,m} are not supported (write \\{ for a brace)";
    if (c == '\0' || c == '\n') return "a line of a log holds neither NUL nor line end";
    if (c == '\\') ++i;
  }
  regex_t compiled;
  const int failed = regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB);
  if (failed != 0) {
    char reason[128];
    regerror(failed, &compiled, reason, sizeof reason);
    return std::string(reason) + " (POSIX extended regular expression)";
  }
  regfree(&compiled);
  return "";
}

// ---- Variants ----

Variant as_deployed(const Deployment& deployment) {
  Variant variant;
  for (const SwitchSpec& spec : deployment.switches) variant.push_back(spec.deployed_on);
  return variant;
}

Variant reference_variant(const Deployment& deployment) {
  Variant variant;
  for (const SwitchSpec& spec : deployment.switches) variant.push_back(!spec.working_off);
  return variant;
}

Result<void> check_variant(const Deployment& deployment, const Variant& variant) {
  CHECK(variant.size() == deployment.switches.size());
  const auto is_on = [&](const std::string& name) {
    for (std::size_t i = 0; i < variant.size(); ++i)
      if (deployment.switches[i].name == name) return static_cast<bool>(variant[i]);
    return false;
  };
  for (std::size_t i = 0; i < variant.size(); ++i) {
    const SwitchSpec& spec = deployment.switches[i];
    if (!variant[i] && !spec.working_off)
      return error("switch {} is off, but its off side is known not to launch (working_off = false)", spec.name);
    if (!variant[i]) continue;
    for (const std::string& name : spec.needs)
      if (!is_on(name)) return error("switch {} is on and requires {}, which is off", spec.name, name);
    for (const std::string& name : spec.conflicts)
      if (is_on(name)) return error("switches {} and {} are both on and conflict", spec.name, name);
  }
  return {};
}

std::string describe(const Deployment& deployment, const Variant& variant) {
  CHECK(variant.size() == deployment.switches.size());
  std::string text;
  for (std::size_t i = 0; i < variant.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "" : " ", deployment.switches[i].name, variant[i] ? "on" : "off");
  return text;
}

}  // namespace plumb::investigator

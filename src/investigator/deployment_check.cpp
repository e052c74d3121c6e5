#include "investigator/deployment_check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include <fmt/ranges.h>
#include <regex.h>

#include "base/check.h"
#include "investigator/launch_command.h"
#include "investigator/secrets.h"
#include "investigator/supervisor.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

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

template <class Range>
Result<void> check_names(const Range& items, const std::string& kind, const Locate& locate) {
  std::set<std::string> seen;
  for (const auto& item : items) {
    const std::string where = locate(kind + " " + item.name);
    // Names become parts of file names and of marks.
    if (!is_name(item.name))
      return error("{}{} name \"{}\": use 1 to 100 letters, digits, '_', '-' and '.'", where, kind, item.name);
    if (!seen.insert(item.name).second) return error("{}{} \"{}\" exists twice: rename one", where, kind, item.name);
  }
  return {};
}

// Every text in which marks are filled, with the item it belongs to.
struct MarkedText {
  std::string item;
  std::string text;
  std::string mark_kinds;  // of port, instance, env, source: those that may stand there, by their first letters
};
std::vector<MarkedText> marked_texts(const Deployment& deployment) {
  std::vector<MarkedText> texts;
  for (const ProcessSpec& process : deployment.processes) {
    const std::string item = "process " + process.name;
    for (const std::string& argument : process.command) texts.push_back({item, argument, "peis"});
    for (const auto& [name, value] : process.env) texts.push_back({item, value, "peis"});
    texts.push_back({item, process.cwd, "s"});
  }
  for (std::size_t i = 0; i < deployment.endpoints.size(); ++i) {
    const EndpointSpec& endpoint = deployment.endpoints[i];
    const std::string item = fmt::format("endpoint {}", i);
    texts.push_back({item, endpoint.url, "p"});
    texts.push_back({item, endpoint.model, "i"});
    for (const auto& [name, value] : endpoint.headers) texts.push_back({item, value, "e"});
  }
  for (const SwitchSpec& spec : deployment.switches)
    for (const SwitchSide* side : {&spec.off, &spec.on}) {
      for (const std::string& argument : side->args) texts.push_back({"switch " + spec.name, argument, "peis"});
      for (const auto& [name, value] : side->env) texts.push_back({"switch " + spec.name, value, "peis"});
    }
  return texts;
}

Result<void> check_mark(const Deployment& deployment, const MarkedText& in, const Mark& mark, const Locate& locate) {
  const auto refused = [&](const std::string& why) {
    return error("{}{}: {} {}", locate(in.item), in.item, written(mark), why);
  };
  if (in.mark_kinds.find("pies"[static_cast<std::size_t>(mark.kind)]) == std::string::npos)
    return refused("cannot stand here");
  if (mark.kind == Mark::Kind::source && deployment.source.repository.empty())
    return refused("needs a [source] with a repository");
  if ((mark.kind == Mark::Kind::port || mark.kind == Mark::Kind::instance) &&
      !has_name(deployment.processes, mark.name))
    return refused("names no process; known: " + known_names(deployment.processes));
  return {};
}

// The processes whose {port:NAME} stands somewhere.
Result<std::set<std::string>> check_marks(const Deployment& deployment, const Locate& locate) {
  std::set<std::string> with_port;
  for (const MarkedText& in : marked_texts(deployment)) {
    const auto marks = marks_of(in.text);
    if (!marks) return error("{}{}: {}", locate(in.item), in.item, marks.error().message);
    for (const Mark& mark : *marks) {
      if (auto checked = check_mark(deployment, in, mark, locate); !checked) return tl::unexpected(checked.error());
      if (mark.kind == Mark::Kind::port) with_port.insert(mark.name);
    }
  }
  return with_port;
}

// A secret that is written out would be stored with the case: only the name of its variable may stand in the file.
Result<void> check_no_secret(const std::string& where, const std::string& what, const std::string& name,
                             const std::string& value) {
  if (!names_a_secret(name) || value.size() < kLeastSecretBytes) return {};
  const auto marks = marks_of(value);
  if (marks && std::any_of(marks->begin(), marks->end(), [](const Mark& m) { return m.kind == Mark::Kind::env; }))
    return {};
  return error(
      "{}{} {} holds a secret by its name: write \"{{env:VARIABLE}}\" and export that variable; keys are "
      "never stored",
      where, what, name);
}

// "--api-key VALUE" and "--api-key=VALUE".
Result<void> check_no_secret_argument(const std::string& where, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("-")) continue;
    const std::size_t equal = argument.find('=');
    const std::string value = equal != std::string::npos ? argument.substr(equal + 1)
                              : i + 1 < arguments.size() ? arguments[i + 1]
                                                         : "";
    if (equal == std::string::npos && value.starts_with("-")) continue;
    if (auto checked = check_no_secret(where, "argument", argument.substr(0, equal), value); !checked) return checked;
  }
  return {};
}

Result<void> check_secrets(const Deployment& deployment, const Locate& locate) {
  const auto check_env = [](const std::string& where, const char* what, const std::map<std::string, std::string>& env) {
    for (const auto& [name, value] : env)
      if (auto checked = check_no_secret(where, what, name, value); !checked) return checked;
    return Result<void>{};
  };
  for (const ProcessSpec& process : deployment.processes) {
    const std::string where = locate("process " + process.name);
    if (auto checked = check_env(where, "env", process.env); !checked) return checked;
    if (auto checked = check_no_secret_argument(where, process.command); !checked) return checked;
  }
  for (std::size_t i = 0; i < deployment.endpoints.size(); ++i)
    if (auto checked = check_env(locate(fmt::format("endpoint {}", i)), "header", deployment.endpoints[i].headers);
        !checked)
      return checked;
  for (const SwitchSpec& spec : deployment.switches)
    for (const SwitchSide* side : {&spec.off, &spec.on}) {
      const std::string where = locate("switch " + spec.name);
      if (auto checked = check_env(where, "env", side->env); !checked) return checked;
      if (auto checked = check_no_secret_argument(where, side->args); !checked) return checked;
    }
  return {};
}

// What a template needs, and what has no meaning for it.
Result<void> check_place(const ProcessSpec& process, const std::string& where) {
  const auto refused = [&](const std::string& what) { return error("{}process {}: {}", where, process.name, what); };
  const std::string& via = process.via;
  const bool in_image = via == "docker" || via == "kubectl";
  if (via == "ssh" && process.host.empty()) return refused("via = \"ssh\" needs host = \"NAME\"");
  if (via == "local" && !process.host.empty())
    return refused("host needs via = \"ssh\", \"docker\", \"kubectl\" or \"srun\": local is this machine");
  if (in_image && process.image.empty()) return refused(fmt::format("via = \"{}\" needs image = \"NAME\"", via));
  if (!in_image && !process.image.empty()) return refused("image needs via = \"docker\" or \"kubectl\"");
  if (via == "local" && !process.via_args.empty())
    return refused("via_args are options of ssh, docker, kubectl or srun: put those of the program into command");
  if (process.host.starts_with("-")) return refused("host begins with '-', so that it would be taken for an option");
  if (process.wait_gpu_memory && !listens_here(process) && via != "ssh")
    return refused("stop.wait gpu_memory cannot be asked of a " + std::string(via == "srun" ? "job" : "pod") +
                   ": the cluster frees it");
  return {};
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
    if (auto place = check_place(process, where); !place) return place;
    if (!process.ready_http.empty() && host_of(process).empty())
      return error("{}process {}: ready.http needs to know where the port answers: add host, or use ready.log", where,
                   process.name);
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

bool is_url_of_a_host(const std::string& url, const Deployment& deployment) {
  return std::any_of(deployment.processes.begin(), deployment.processes.end(), [&](const ProcessSpec& process) {
    const std::string host = process.host.substr(process.host.rfind('@') + 1);
    return !host.empty() && (url == "http://" + host || url.starts_with("http://" + host + ":") ||
                             url.starts_with("http://" + host + "/"));
  });
}

Result<void> check_endpoints(const Deployment& deployment, const Locate& locate) {
  if (deployment.endpoints.empty())
    return error("{}no [[endpoint]]: add one with the url that answers requests", locate(""));
  for (std::size_t i = 0; i < deployment.endpoints.size(); ++i) {
    const EndpointSpec& endpoint = deployment.endpoints[i];
    const std::string where = locate(fmt::format("endpoint {}", i));
    if (auto url = check_url(endpoint.url); !url) return error("{}endpoint {}", where, url.error().message);
    if (!is_name(endpoint.name))
      return error("{}endpoint name \"{}\": use letters, digits, '_', '-' and '.'", where, endpoint.name);
    if (endpoint_named(deployment, endpoint.name) != i)
      return error("{}endpoint \"{}\" exists twice: rename one", where, endpoint.name);
    if (!deployment.processes.empty() && !is_local_url(endpoint.url) && !is_url_of_a_host(endpoint.url, deployment))
      return error(
          "{}endpoint url \"{}\": its host must be 127.0.0.1, localhost or [::1], or the `host` of a process: a server "
          "that plumb does not start cannot be told from it",
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
    if (never && spec.apply != "request")
      return error(
          "{}switch {}: apply = \"{}\" cannot be used where restart = \"never\": give it sides of body or endpoint "
          "and apply = \"request\", or remove it",
          locate("switch " + spec.name), spec.name, spec.apply);
  return {};
}

bool is_empty(const SwitchSide& side) {
  return side.env.empty() && side.args.empty() && side.body.empty() && side.patch.empty() && side.endpoint.empty();
}

bool are_equal(const SwitchSide& a, const SwitchSide& b) {
  return a.env == b.env && a.args == b.args && a.body == b.body && a.patch == b.patch && a.endpoint == b.endpoint;
}

// Each side holds what `apply` can bring about, and nothing else.
Result<void> check_side(const Deployment& deployment, const SwitchSpec& spec, const SwitchSide& side,
                        const std::string& where) {
  const auto refused = [&](const std::string& what) { return error("{}switch {}: {}", where, spec.name, what); };
  const bool launches = !side.env.empty() || !side.args.empty();
  if (spec.apply == "request" && launches)
    return refused("env and args need a launch, but apply is \"request\": use body, or apply = \"restart\"");
  if (spec.apply != "patch" && !side.patch.empty()) return refused("patch needs apply = \"patch\"");
  if (!side.patch.empty() && deployment.source.repository.empty())
    return refused("patch needs a [source] with the repository that it changes");
  if (spec.apply != "request" && !side.endpoint.empty()) return refused("endpoint needs apply = \"request\"");
  if (!side.endpoint.empty() && !endpoint_named(deployment, side.endpoint))
    return refused(
        fmt::format("endpoint names no endpoint \"{}\"; known: {}", side.endpoint, known_names(deployment.endpoints)));
  return {};
}

Result<void> check_sides(const Deployment& deployment, const SwitchSpec& spec, const std::string& where) {
  if (are_equal(spec.off, spec.on))
    return error("{}switch {}: both sides {}, so flipping it changes nothing: give a side env, args or body", where,
                 spec.name, is_empty(spec.on) ? "are empty" : "are equal");
  for (const SwitchSide* side : {&spec.off, &spec.on})
    if (auto checked = check_side(deployment, spec, *side, where); !checked) return checked;
  if (spec.apply == "patch" && spec.off.patch.empty() && spec.on.patch.empty())
    return error("{}switch {}: apply = \"patch\", but no side has a patch", where, spec.name);
  if (spec.deployed_on == false && spec.value_of.empty() && !spec.working_off)
    return error("{}switch {}: deployed = \"off\", but working_off = false says that this side does not launch", where,
                 spec.name);
  return {};
}

// A shell gets the args of switches as "$@" only.
Result<void> check_shell_args(const Deployment& deployment, const SwitchSpec& spec, const std::string& where) {
  if (spec.on.args.empty() && spec.off.args.empty()) return {};
  for (const ProcessSpec& process : deployment.processes)
    if (process.shell && acts_on(spec, process.name) && process.command.at(0).find("$@") == std::string::npos)
      return error("{}switch {}: its args reach process {} through a shell whose command has no \"$@\": add it", where,
                   spec.name, process.name);
  return {};
}

// Whether processes run from the working tree that patches change.
Result<void> check_source(const Deployment& deployment, const Locate& locate) {
  if (deployment.source.repository.empty()) return {};
  const std::vector<std::string> texts = texts_with_marks(deployment);
  const bool used = std::any_of(texts.begin(), texts.end(),
                                [](const std::string& text) { return text.find("{source}") != std::string::npos; });
  if (!used) return error("{}[source]: no process runs from it: put {{source}} into a command, env or cwd", locate(""));
  return {};
}

Result<void> check_switches(const Deployment& deployment, const Locate& locate) {
  for (const SwitchSpec& spec : deployment.switches) {
    const std::string where = locate("switch " + spec.name);
    if (auto sides = check_sides(deployment, spec, where); !sides) return sides;
    if (auto shell = check_shell_args(deployment, spec, where); !shell) return shell;
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
  if (auto restart = check_restart(deployment, locate); !restart) return restart;
  const auto with_port = check_marks(deployment, locate);
  if (!with_port) return tl::unexpected(with_port.error());
  if (auto secrets = check_secrets(deployment, locate); !secrets) return secrets;
  if (auto processes = check_processes(deployment, *with_port, locate); !processes) return processes;
  if (auto order = check_start_order(deployment, locate); !order) return order;
  if (auto endpoints = check_endpoints(deployment, locate); !endpoints) return endpoints;
  if (auto source = check_source(deployment, locate); !source) return source;
  return check_switches(deployment, locate);
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 100 && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.');
         });
}

bool is_cpu_list(std::string_view text) {
  constexpr int kMostCpus = 1 << 16;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int first = -1;
    const auto [rest, bad] = std::from_chars(at, end, first);
    if (bad != std::errc() || first < 0 || first >= kMostCpus) return false;
    at = rest;
    if (at < end && *at == '-') {
      int last = -1;
      const auto [after, wrong] = std::from_chars(at + 1, end, last);
      if (wrong != std::errc() || last < first || last >= kMostCpus) return false;
      at = after;
    }
    if (at == end) return true;
    if (*at++ != ',') return false;
  }
}

bool is_local_url(const std::string& url) {
  for (const char* host : {"http://127.0.0.1", "http://localhost", "http://[::1]"})
    if (url.rfind(host, 0) == 0 &&
        (url.size() == std::string_view(host).size() ||
         std::string_view(":/").find(url[std::string_view(host).size()]) != std::string::npos))
      return true;
  return false;
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

}  // namespace plumb::investigator

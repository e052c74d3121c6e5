#include "investigator/plan_lint.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <string.h>

#include "investigator/investigate.h"
#include "investigator/launch_command.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

struct Meaning {
  std::string_view key, means;
};

constexpr std::array kMeanings{
    Meaning{"the file deployment", "what holds for the whole deployment"},
    Meaning{"the file process", "processes that plumb starts and stops"},
    Meaning{"the file endpoint", "where requests go"},
    Meaning{"the file request", "what every request holds"},
    Meaning{"the file switch", "what may be turned to find the culprit"},
    Meaning{"the file facts", "lengths and sizes that the probes aim at"},
    Meaning{"the file source", "the repository that patch switches change"},
    Meaning{"the file deployment name", "the name in reports"},
    Meaning{"the file deployment restart",
            "allowed: plumb starts and stops the processes; never: it only sends requests"},
    Meaning{"the file deployment start_timeout_s", "seconds from the first start to the first generation of all"},
    Meaning{"the file deployment max_parallel", "launches at a time"},
    Meaning{"the file deployment model_config", "window, index_topk and max_len are read from this config.json"},
    Meaning{"[[process]]", "a process that plumb starts"},
    Meaning{"[[process]] name", "how the other lines call it: {port:NAME}, after, processes"},
    Meaning{"[[process]] role", "what it does in the deployment; per_role switches are turned for each role alone"},
    Meaning{"[[process]] command", "its argv; the args of the switches are appended"},
    Meaning{"[[process]] env",
            "added to plumb's own environment; {env:NAME} is filled in at the launch and never stored"},
    Meaning{"[[process]] cwd", "the directory that it runs in"},
    Meaning{"[[process]] after", "it is started when these are ready"},
    Meaning{"[[process]] ready", "what must hold before it counts as ready, besides listening on its {port:NAME}"},
    Meaning{"[[process]] ready http", "this path answers 200"},
    Meaning{"[[process]] ready log", "a line of its log matches this expression"},
    Meaning{"[[process]] ready generate", "true: each endpoint on its port has answered one real generation"},
    Meaning{"[[process]] stop", "how it is stopped, and what is waited for"},
    Meaning{"[[process]] stop signal", "sent to its process group first"},
    Meaning{"[[process]] stop grace_s", "seconds until everything that is left of it is killed"},
    Meaning{"[[process]] stop wait",
            "port and processes are always waited for; gpu_memory: until its GPUs hold no more than before"},
    Meaning{"[[process]] stop wait_s", "seconds that the GPUs' memory may take; then plumb stops with a message"},
    Meaning{"[[process]] via",
            "where it runs: local, or through ssh, docker, kubectl or srun, whose argv stands below"},
    Meaning{"[[process]] host", "the machine or node that it runs on"},
    Meaning{"[[process]] image", "the image of its container"},
    Meaning{"[[process]] via_args", "further options of ssh, docker run, kubectl run or srun"},
    Meaning{"[[process]] gpus", "CUDA_VISIBLE_DEVICES, or the devices of its container, pod (their number) or job"},
    Meaning{"[[process]] cpus", "the CPUs that it may use"},
    Meaning{"[[process]] log", "its output goes to the case folder, its last 50 lines into the message when it dies"},
    Meaning{"[[process]] shell", "true: command is one line for sh, \"$@\" in it are the args of switches"},
    Meaning{"[[endpoint]]", "a place that answers requests; the first one is asked unless a switch names another"},
    Meaning{"[[endpoint]] url", "without /v1; its port must belong to a process of this launch"},
    Meaning{"[[endpoint]] api", "completions: the prompt as text; chat: as messages"},
    Meaning{"[[endpoint]] model", "the model's name in requests; without it the first that /v1/models lists"},
    Meaning{"[[endpoint]] key_env",
            "the variable that holds the key; its value is never stored and replaced wherever it shows"},
    Meaning{"[[endpoint]] headers", "sent with every request"},
    Meaning{"[[endpoint]] max_in_flight",
            "requests at a time, at most, of plumb probe; an investigation sends one at a time"},
    Meaning{"[[endpoint]] name", "how a side of a switch names it"},
    Meaning{"[[endpoint]] role", "who answers there"},
    Meaning{"[[endpoint]] requests_per_min", "requests are spaced to stay below this"},
    Meaning{"[[endpoint]] max_tokens_total",
            "prompt tokens, at most; reaching it ends the investigation without a verdict"},
    Meaning{"the file request temperature", "of every request; 0 is greedy"},
    Meaning{"the file request extra", "merged into every request"},
    Meaning{"the file request answer_tokens", "max_tokens of a question"},
    Meaning{"the file request thinking_tokens", "added to answer_tokens, for models that reason first"},
    Meaning{"[[switch]]", "a setting that may be turned"},
    Meaning{"[[switch]] name", "its name in reports"},
    Meaning{"[[switch]] processes", "the processes it acts on, by name or glob"},
    Meaning{"[[switch]] sides", "what each side adds; off is the reference"},
    Meaning{"[[switch]] sides off", "the reference side"},
    Meaning{"[[switch]] sides SIDE", "another side"},
    Meaning{"[[switch]] sides SIDE env", "added to the environment of its processes"},
    Meaning{"[[switch]] sides SIDE args", "appended to the command of its processes"},
    Meaning{"[[switch]] sides SIDE body", "merged into every request"},
    Meaning{"[[switch]] sides SIDE patch",
            "a patch file that is applied, or a commit that is reverted, in the tree of [source]"},
    Meaning{"[[switch]] sides SIDE endpoint", "requests go to this endpoint"},
    Meaning{"[[switch]] deployed", "the side that runs now"},
    Meaning{"[[switch]] requires", "these must be on when it is on"},
    Meaning{"[[switch]] conflicts", "these must be off when it is on"},
    Meaning{"[[switch]] apply",
            "restart: by a new launch; request: by the requests; patch: by a new launch from the changed tree"},
    Meaning{"[[switch]] cost_s", "what turning it costs, a hint"},
    Meaning{"[[switch]] phase", "where it acts"},
    Meaning{"[[switch]] working_off", "false: its off side does not launch, so it cannot be cleared by turning it"},
    Meaning{"[[switch]] shift", "how far its honest on side moves log-probabilities; more is over budget"},
    Meaning{"[[switch]] per_role", "true: one switch for each role of its processes"},
    Meaning{"the file facts window", "tokens that attention sees without compression"},
    Meaning{"the file facts chunk", "tokens of a prefill chunk"},
    Meaning{"the file facts page", "tokens of a cache page"},
    Meaning{"the file facts index_topk", "entries that the sparse index keeps"},
    Meaning{"the file facts max_len", "longest context; longer probes are left out"},
    Meaning{"the file source repository",
            "its commit and uncommitted changes are copied; the checkout itself is only read"},
    Meaning{"the file source build", "run in the copy after each change"},
    Meaning{"the file source build_timeout_s", "seconds that the build may take"},
};

constexpr std::string_view kSides = "[[switch]] sides ";

// The name of a side stands in keys where the table has SIDE.
std::string general(std::string_view key) {
  if (!key.starts_with(kSides)) return std::string(key);
  const std::string_view rest = key.substr(kSides.size());
  const std::size_t space = rest.find(' ');
  if (space == std::string_view::npos) return std::string(rest == "off" ? key : "[[switch]] sides SIDE");
  return std::string(kSides) + "SIDE" + std::string(rest.substr(space));
}

// "[[process]] ready http" -> "ready.http"
std::string short_name(std::string_view key) {
  for (const std::string_view lead : {"the file ", "[[process]] ", "[[endpoint]] ", "[[switch]] "})
    if (key.starts_with(lead)) {
      std::string name(key.substr(lead.size()));
      std::replace(name.begin(), name.end(), ' ', '.');
      return name;
    }
  return std::string(key);
}

bool is_blank_or_comment(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  return first == std::string_view::npos || line[first] == '#';
}

const char* signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "?" : name;
}

std::string readiness(const ProcessSpec& p) {
  std::string text = p.via == "local" ? "it listens on its port" : "its program runs";
  if (!p.ready_log_regex.empty()) text += fmt::format(", its log has a line that matches {}", p.ready_log_regex);
  if (!p.ready_http.empty()) text += fmt::format(", {} answers 200", p.ready_http);
  if (p.ready_generate) text += ", each endpoint on its port has answered one generation";
  return text;
}

std::string stopping(const ProcessSpec& p) {
  std::string text = fmt::format("SIG{}, KILL after {} s; until its port is closed and no process of it is left",
                                 signal_name(p.stop_signal), p.stop_grace_s);
  if (p.wait_gpu_memory)
    text += fmt::format(", and GPU {} hold no more than before (at most {} s)", fmt::join(p.gpus, ", "), p.stop_wait_s);
  return text;
}

std::string effect_of(const SwitchSide& side) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : side.env) parts.push_back(fmt::format("env {}={}", name, value));
  if (!side.args.empty()) parts.push_back(fmt::format("args {}", fmt::join(side.args, " ")));
  if (!side.body.empty()) parts.push_back("body " + side.body);
  if (!side.patch.empty()) parts.push_back("patch " + side.patch);
  if (!side.endpoint.empty()) parts.push_back("endpoint " + side.endpoint);
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string turning(const SwitchSpec& spec) {
  if (spec.apply == "request") return "by the requests, without a launch";
  if (spec.apply == "patch") return "by a launch from the patched and built tree of [source]";
  return "by a launch";
}

std::set<std::string> variables_not_set(const Deployment& deployment) {
  std::set<std::string> missing;
  const auto look = [&](const std::string& name) {
    if (!name.empty() && std::getenv(name.c_str()) == nullptr) missing.insert(name);
  };
  for (const EndpointSpec& endpoint : deployment.endpoints) look(endpoint.key_env);
  for (const std::string& text : texts_with_marks(deployment))
    for (const Mark& mark : marks_of(text).value_or(std::vector<Mark>{}))
      if (mark.kind == Mark::Kind::env) look(mark.name);
  return missing;
}

// In an order in which `after` allows it.
std::vector<const ProcessSpec*> start_order(const Deployment& deployment) {
  std::vector<const ProcessSpec*> order;
  const auto started = [&](const std::string& name) {
    return std::any_of(order.begin(), order.end(), [&](const auto* p) { return p->name == name; });
  };
  while (order.size() < deployment.processes.size())
    for (const ProcessSpec& p : deployment.processes)
      if (!started(p.name) && std::all_of(p.after.begin(), p.after.end(), started)) order.push_back(&p);
  return order;
}

std::string explain_process(const Deployment& deployment, const ProcessSpec& p) {
  const RenderedProcess deployed = render_unfilled(deployment, as_deployed(deployment), p);
  const std::string reference = shell_line(render_unfilled(deployment, reference_variant(deployment), p).command);
  std::string out = fmt::format("process {} ({}, {}{}):\n", p.name, p.role, p.via, p.host.empty() ? "" : " " + p.host);
  out += fmt::format("  as deployed: {}\n", shell_line(deployed.command));
  if (reference != shell_line(deployed.command)) out += fmt::format("  reference:   {}\n", reference);
  if (!p.after.empty()) out += fmt::format("  started when ready: {}\n", fmt::join(p.after, ", "));
  out += fmt::format("  ready when: {}\n  stopped by: {}\n", readiness(p), stopping(p));
  if (deployed.cleanup) out += fmt::format("  then, also when plumb is killed: {}\n", shell_line(*deployed.cleanup));
  return out;
}

std::string explain_endpoint(const EndpointSpec& e, bool asked) {
  std::string out = fmt::format("endpoint {} ({}): {}, {}", e.name, e.role, e.url, e.api);
  if (!asked) out += "; must be ready, is asked only where a switch names it";
  if (!e.key_env.empty()) out += fmt::format("; key from {}", e.key_env);
  if (e.requests_per_min > 0) out += fmt::format("; at most {} requests a minute", e.requests_per_min);
  if (e.max_tokens_total > 0) out += fmt::format("; at most {} prompt tokens", e.max_tokens_total);
  return out + "\n";
}

}  // namespace

std::string_view meaning_of(std::string_view key) {
  const std::string name = general(key);
  for (const Meaning& meaning : kMeanings)
    if (meaning.key == name) return meaning.means;
  return "";
}

std::string explain_file(std::string_view toml, const std::vector<FileNote>& notes) {
  std::string out;
  std::uint32_t number = 1;
  for (std::size_t begin = 0; begin < toml.size(); ++number) {
    const std::size_t end = std::min(toml.find('\n', begin), toml.size());
    const std::string_view line = toml.substr(begin, end - begin);
    begin = end + 1;
    if (is_blank_or_comment(line)) continue;
    out += fmt::format("{:>4} | {}\n", number, line);
    std::set<std::string> said;
    for (const FileNote& note : notes)
      if (note.line == number && said.insert(note.key).second)
        out += fmt::format("     |   {}: {}\n", short_name(note.key), meaning_of(note.key));
  }
  return out;
}

std::string explain_launches(const Deployment& deployment) {
  std::string out;
  for (const std::string& name : variables_not_set(deployment))
    out += fmt::format("not set: the environment variable {}; a launch will fail until it is exported\n", name);
  if (deployment.restart == "never")
    out +=
        "nothing is started or stopped: plumb sends requests only, one at a time; faults that differ from launch to "
        "launch and settings that need one cannot be tested, and nothing can be more than suspected\n";
  for (const ProcessSpec* p : start_order(deployment)) out += explain_process(deployment, *p);
  for (std::size_t i = 0; i < deployment.endpoints.size(); ++i)
    out += explain_endpoint(deployment.endpoints[i], i == 0);
  if (!deployment.source.repository.empty())
    out += fmt::format(
        "source: a copy of {} in the case folder, {}; removed at the end\n", deployment.source.repository,
        deployment.source.build.empty() ? std::string("not built")
                                        : fmt::format("built by {}", fmt::join(deployment.source.build, " ")));
  for (const SwitchSpec& s : deployment.switches) {
    out += fmt::format("switch {}: turned {}; off: {}; on: {}; deployed {}", s.name, turning(s), effect_of(s.off),
                       effect_of(s.on), s.deployed_on ? "on" : "off");
    if (!s.working_off) out += "; its off side does not launch, so turning it cannot clear it";
    out += "\n";
  }
  return out;
}

Result<std::string> explain_plan(const Deployment& deployment, const Limits& limits, std::string_view toml,
                                 const std::vector<FileNote>& notes) {
  auto plan = describe_plan(deployment, limits);
  if (!plan) return plan;
  return "The file, line by line:\n" + explain_file(toml, notes) + "\nWhat will be started and asked:\n" +
         explain_launches(deployment) + "\nWhat will be measured:\n" + *plan;
}

Result<std::string> explained_plan_json(const Deployment& deployment, const Limits& limits,
                                        const std::vector<FileNote>& notes) {
  auto plan = plan_json(deployment, limits);
  if (!plan) return plan;
  Json document = Json::parse(*plan);
  document["plan"].update(lint_json(deployment, notes));
  return document.dump(2) + "\n";
}

Json lint_json(const Deployment& deployment, const std::vector<FileNote>& notes) {
  Json lint = Json::array(), processes = Json::array(), endpoints = Json::array(), applied = Json::array();
  for (const FileNote& note : notes)
    lint.push_back({{"line", note.line}, {"key", short_name(note.key)}, {"means", meaning_of(note.key)}});
  for (const ProcessSpec* p : start_order(deployment)) {
    const RenderedProcess deployed = render_unfilled(deployment, as_deployed(deployment), *p);
    const RenderedProcess reference = render_unfilled(deployment, reference_variant(deployment), *p);
    processes.push_back({{"process", p->name},
                         {"role", p->role},
                         {"via", p->via},
                         {"deployed", {{"argv", deployed.command.argv}, {"env", deployed.command.env}}},
                         {"reference", {{"argv", reference.command.argv}, {"env", reference.command.env}}},
                         {"cleanup", deployed.cleanup ? Json(deployed.cleanup->argv) : Json()},
                         {"ready", readiness(*p)},
                         {"stop", stopping(*p)}});
  }
  for (const EndpointSpec& e : deployment.endpoints)
    endpoints.push_back({{"endpoint", e.name}, {"url", e.url}, {"api", e.api}, {"role", e.role}});
  for (const SwitchSpec& s : deployment.switches)
    applied.push_back({{"switch", s.name}, {"apply", s.apply}, {"off", effect_of(s.off)}, {"on", effect_of(s.on)}});
  return {{"lint", lint},
          {"processes", processes},
          {"endpoints", endpoints},
          {"applied", applied},
          {"not_set", variables_not_set(deployment)}};
}

}  // namespace plumb::investigator

#include "investigator/launch_command.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "investigator/deployment_check.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

constexpr int kStopPollsPerS = 5;  // of the remote stop's loop

using Argv = std::vector<std::string>;

void append(Argv& argv, const Argv& more) { argv.insert(argv.end(), more.begin(), more.end()); }

// One word for /bin/sh.
bool is_plain_word(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("/._-+:@%=,").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

std::string joined_for_shell(const Argv& argv) {
  std::string line;
  for (const std::string& word : argv) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

// Pinned to its CPUs where we start it ourselves.
Argv pinned(const ProcessSpec& process, const Argv& argv) {
  if (process.cpus.empty()) return argv;
  Argv out{"taskset", "-c", process.cpus};
  append(out, argv);
  return out;
}

// "0-3,8" -> 5
int count_of_cpus(const std::string& list) {
  int count = 0;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string part = list.substr(begin, end - begin);
    const std::size_t dash = part.find('-');
    count += dash == std::string::npos ? 1 : std::stoi(part.substr(dash + 1)) - std::stoi(part.substr(0, dash)) + 1;
    begin = end + 1;
  }
  return count;
}

std::string grace(const ProcessSpec& process) {
  return std::to_string(static_cast<int>(std::ceil(process.stop_grace_s)));
}

// A shell on the host notes the number of its process group and becomes the server; the cleanup ends that group.
// Without a terminal the server would not notice that the connection is gone.
RenderedProcess via_ssh(const ProcessSpec& process, const Command& plain, const std::string& instance) {
  const Argv options{"-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"};
  const std::string pid_file = fmt::format("/tmp/{}.pid", instance);
  Argv server{"env"};
  for (const auto& [name, value] : plain.env) server.push_back(name + "=" + value);
  append(server, pinned(process, plain.argv));
  const std::string change = plain.cwd.empty() ? "" : "cd " + shell_quoted(plain.cwd) + " && ";
  RenderedProcess out;
  out.command.argv = {"ssh"};
  append(out.command.argv, options);
  append(out.command.argv, process.via_args);
  append(out.command.argv,
         {process.host, fmt::format("echo $$ > {0} && {1}exec {2}", pid_file, change, joined_for_shell(server))});
  out.cleanup = Command{{"ssh"}, {}, ""};
  append(out.cleanup->argv, options);
  append(out.cleanup->argv, process.via_args);
  append(
      out.cleanup->argv,
      {process.host,
       fmt::format("p=$(cat {0} 2>/dev/null) || exit 0; kill -{1} -- -$p 2>/dev/null; i=0; "
                   "while kill -0 -- -$p 2>/dev/null && [ $i -lt {2} ]; do sleep 0.2; i=$((i+1)); done; "
                   "kill -KILL -- -$p 2>/dev/null; rm -f {0}",
                   pid_file, process.stop_signal, static_cast<int>(std::ceil(process.stop_grace_s * kStopPollsPerS)))});
  return out;
}

RenderedProcess via_docker(const ProcessSpec& process, const Command& plain, const std::string& instance) {
  Argv docker{"docker"};
  if (!process.host.empty()) append(docker, {"--host", "ssh://" + process.host});
  RenderedProcess out;
  out.command.argv = docker;
  append(out.command.argv, {"run", "--rm", "--init", "--name", instance, "--network", "host", "--stop-signal",
                            std::to_string(process.stop_signal)});
  if (!process.gpus.empty())
    append(out.command.argv, {"--gpus", fmt::format("\"device={}\"", fmt::join(process.gpus, ","))});
  if (!process.cpus.empty()) append(out.command.argv, {"--cpuset-cpus", process.cpus});
  if (!plain.cwd.empty()) append(out.command.argv, {"--workdir", plain.cwd});
  for (const auto& [name, value] : plain.env) {
    // The container numbers the devices it is given from 0.
    if (name == "CUDA_VISIBLE_DEVICES" && !process.gpus.empty()) continue;
    append(out.command.argv, {"--env", name});  // the value comes from docker's own environment: no argv shows it
    out.command.env[name] = value;
  }
  append(out.command.argv, process.via_args);
  out.command.argv.push_back(process.image);
  append(out.command.argv, plain.argv);
  out.cleanup = Command{};
  // What counts is that it is gone: with --rm it usually is already, and some versions call that an error.
  const std::string docker_line = joined_for_shell(docker);
  out.cleanup->argv = {
      "sh", "-c",
      fmt::format("{0} rm --force {1} >/dev/null 2>&1; left=$({0} ps --all --quiet --filter name=^{1}$) "
                  "&& [ -z \"$left\" ]",
                  docker_line, shell_quoted(instance))};
  return out;
}

RenderedProcess via_kubectl(const ProcessSpec& process, const Command& plain, const std::string& instance) {
  using Json = nlohmann::ordered_json;
  RenderedProcess out;
  Argv& argv = out.command.argv;
  argv = {"kubectl",
          "run",
          instance,
          "--image=" + process.image,
          "--restart=Never",
          "--attach",
          "--pod-running-timeout=10m"};
  for (const auto& [name, value] : plain.env)
    if (name != "CUDA_VISIBLE_DEVICES" || process.gpus.empty()) argv.push_back("--env=" + name + "=" + value);
  Json limits = Json::object();
  if (!process.gpus.empty()) limits["nvidia.com/gpu"] = std::to_string(process.gpus.size());
  if (!process.cpus.empty()) limits["cpu"] = std::to_string(count_of_cpus(process.cpus));
  Json container{{"name", instance}};
  if (!limits.empty()) container["resources"] = {{"limits", limits}};
  if (!plain.cwd.empty()) container["workingDir"] = plain.cwd;
  Json spec{{"terminationGracePeriodSeconds", static_cast<int>(std::ceil(process.stop_grace_s))}};
  if (!process.host.empty()) spec["nodeName"] = process.host;
  spec["containers"] = Json::array({container});
  append(argv, {"--override-type=strategic", "--overrides=" + Json{{"apiVersion", "v1"}, {"spec", spec}}.dump()});
  append(argv, process.via_args);
  append(argv, {"--command", "--"});
  append(argv, plain.argv);
  out.cleanup = Command{
      {"kubectl", "delete", "pod", instance, "--ignore-not-found", "--wait=true", "--grace-period=" + grace(process)},
      {},
      ""};
  return out;
}

RenderedProcess via_srun(const ProcessSpec& process, const Command& plain, const std::string& instance) {
  RenderedProcess out;
  Argv& argv = out.command.argv;
  argv = {"srun", "--ntasks=1", "--nodes=1", "--unbuffered", "--export=ALL", "--job-name=" + instance};
  if (!process.host.empty()) argv.push_back("--nodelist=" + process.host);
  if (!process.gpus.empty()) argv.push_back(fmt::format("--gpus={}", process.gpus.size()));
  if (!process.cpus.empty()) argv.push_back(fmt::format("--cpus-per-task={}", count_of_cpus(process.cpus)));
  if (!plain.cwd.empty()) argv.push_back("--chdir=" + plain.cwd);
  append(argv, process.via_args);
  append(argv, plain.argv);
  out.command.env = plain.env;  // --export=ALL carries it
  // Slurm numbers the devices of a job itself.
  if (!process.gpus.empty()) out.command.env.erase("CUDA_VISIBLE_DEVICES");
  out.cleanup = Command{{"scancel", "--name=" + instance}, {}, ""};
  return out;
}

RenderedProcess rendered(const ProcessSpec& process, const Command& plain, const std::string& instance) {
  if (process.via == "ssh") return via_ssh(process, plain, instance);
  if (process.via == "docker") return via_docker(process, plain, instance);
  if (process.via == "kubectl") return via_kubectl(process, plain, instance);
  if (process.via == "srun") return via_srun(process, plain, instance);
  CHECK(process.via == "local");
  RenderedProcess out{plain, std::nullopt};
  out.command.argv = pinned(process, plain.argv);
  return out;
}

std::string instance_of(const std::string& launch, const std::string& process) {
  std::string name = launch + "-" + process;  // of a pod: lower-case letters, digits, '-'
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? static_cast<char>(std::tolower(c)) : '-';
  return name;
}

Command filled(Command command, const std::function<std::string(const Mark&)>& fill) {
  for (std::string& argument : command.argv) argument = fill_marks(argument, fill);
  for (auto& [name, value] : command.env) value = fill_marks(value, fill);
  command.cwd = fill_marks(command.cwd, fill);
  return command;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  if (is_plain_word(word)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_line(const Command& command) {
  std::string line;
  for (const auto& [name, value] : command.env) line += name + "=" + shell_quoted(value) + " ";
  return line + joined_for_shell(command.argv);
}

Command plain_command(const Deployment& deployment, const Variant& variant, const ProcessSpec& process) {
  Command command;
  command.argv = process.command;
  if (process.shell) command.argv = {"sh", "-c", process.command.at(0), "sh"};
  command.env = process.env;
  if (!process.gpus.empty() && command.env.count("CUDA_VISIBLE_DEVICES") == 0)
    command.env["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(process.gpus, ","));
  command.cwd = process.cwd;
  for (const AppliedSide& applied : applied_sides(deployment, variant)) {
    if (!acts_on(*applied.spec, process.name)) continue;
    append(command.argv, applied.side->args);
    for (const auto& [name, value] : applied.side->env) command.env[name] = value;
  }
  return command;
}

Result<std::string> value_from_environment(const std::string& name) {
  if (const char* value = std::getenv(name.c_str())) return std::string(value);
  return error("{} is not set in the environment: export it before plumb starts", name);
}

Result<RenderedProcess> render_process(const Deployment& deployment, const Variant& variant, const ProcessSpec& process,
                                       const LaunchNames& names) {
  std::string missing;
  const auto fill = [&](const Mark& mark) -> std::string {
    switch (mark.kind) {
      case Mark::Kind::port:
        return std::to_string(names.ports.at(mark.name));
      case Mark::Kind::instance:
        return instance_of(names.instance, mark.name);
      case Mark::Kind::source:
        return names.source;
      case Mark::Kind::env:
        break;
    }
    auto value = value_from_environment(mark.name);
    if (!value) missing = value.error().message;
    return value.value_or("");
  };
  const Command plain = filled(plain_command(deployment, variant, process), fill);
  if (!missing.empty()) return error("process {}: {}", process.name, missing);
  return rendered(process, plain, instance_of(names.instance, process.name));
}

RenderedProcess render_unfilled(const Deployment& deployment, const Variant& variant, const ProcessSpec& process) {
  return rendered(process, plain_command(deployment, variant, process), written({Mark::Kind::instance, process.name}));
}

Result<std::string> fill_from_environment(const std::string& text) {
  std::string missing;
  std::string filled = fill_marks(text, [&](const Mark& mark) {
    if (mark.kind != Mark::Kind::env) return written(mark);
    auto value = value_from_environment(mark.name);
    if (!value) missing = value.error().message;
    return value.value_or("");
  });
  if (!missing.empty()) return error(missing);
  return filled;
}

std::string fill_instances(const std::string& text, const LaunchNames& names) {
  return fill_marks(text, [&](const Mark& mark) {
    return mark.kind == Mark::Kind::instance ? instance_of(names.instance, mark.name) : written(mark);
  });
}

std::vector<std::string> texts_with_marks(const Deployment& deployment) {
  std::vector<std::string> texts;
  const auto add_env = [&](const std::map<std::string, std::string>& env) {
    for (const auto& [name, value] : env) texts.push_back(value);
  };
  for (const ProcessSpec& process : deployment.processes) {
    texts.insert(texts.end(), process.command.begin(), process.command.end());
    texts.push_back(process.cwd);
    add_env(process.env);
  }
  // Of all sides of every switch, so that the number of ports says nothing about the variant.
  for (const SwitchSpec& spec : deployment.switches)
    for (const SwitchSide* side : {&spec.off, &spec.on}) {
      texts.insert(texts.end(), side->args.begin(), side->args.end());
      add_env(side->env);
    }
  for (const EndpointSpec& endpoint : deployment.endpoints) {
    texts.push_back(endpoint.url);
    texts.push_back(endpoint.model);
    add_env(endpoint.headers);
  }
  return texts;
}

bool listens_here(const ProcessSpec& process) {
  return process.via == "local" || (process.via == "docker" && process.host.empty());
}

std::string host_of(const ProcessSpec& process) { return listens_here(process) ? "127.0.0.1" : process.host; }

}  // namespace plumb::investigator

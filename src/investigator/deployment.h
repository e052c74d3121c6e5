#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace plumb::investigator {

/// One process of a deployment: argv, where and how it runs, and how to know that it is ready and gone.
struct ProcessSpec {
  std::string name;
  std::string role = "server";       // server | prefill | decode | router
  std::vector<std::string> command;  // argv, no shell; holds marks (marks.h)
  std::map<std::string, std::string> env;
  std::string cwd;  // empty: the directory plumb was started in
  std::vector<std::string> after;
  std::string ready_http;       // path that must answer 200; empty: not asked
  std::string ready_log_regex;  // empty: not asked
  bool ready_generate = true;   // one real generation must be answered
  int stop_signal = 15;
  double stop_grace_s = 5;
  std::vector<int> gpus{};              // by number; also what the stop waits for
  std::string cpus{};                   // "0-31,64": the list of taskset
  std::string via = "local";            // local | ssh | docker | kubectl | srun
  std::string host{};                   // of ssh, docker, kubectl (node), srun (node)
  std::string image{};                  // of docker and kubectl
  std::vector<std::string> via_args{};  // further options of ssh, docker run, kubectl run, srun
  bool shell = false;                   // the command is one line for sh; "$@" are the args of switches
  bool wait_gpu_memory = false;         // stopped only once the GPUs' memory is as free as before the launch
  double stop_wait_s = 60;              // how long to wait for that
};

struct EndpointSpec {
  std::string url;                             // may hold {port:NAME}
  std::string api = "completions";             // completions | chat
  std::string model;                           // empty: what /v1/models says; may hold {instance:NAME}
  std::string key_env;                         // name of the environment variable that holds the key, never the key
  std::map<std::string, std::string> headers;  // values may hold {env:NAME}
  int max_in_flight = 1;
  std::string name{};                 // "endpoint0" by default
  std::string role = "server";        // who answers there: server | prefill | decode | router
  double requests_per_min = 0;        // 0: as fast as max_in_flight allows
  std::int64_t max_tokens_total = 0;  // prompt tokens that it may be sent; 0: no limit
};

/// What one side of a switch adds to a launch or to each request.
struct SwitchSide {
  std::map<std::string, std::string> env;
  std::vector<std::string> args;
  std::string body;        // a JSON object merged into each request; empty: none
  std::string patch{};     // a patch file, or a commit of [source] to revert; empty: none
  std::string endpoint{};  // the name of the endpoint to ask; empty: the first
};

/// A two-sided switch of the deployment; off is the reference side by convention. A switch of the file that has more
/// than two sides becomes one for each value, of which at most one is on; one with per_role becomes one for each role.
struct SwitchSpec {
  std::string name;                    // "a", or of an expanded one "a:VALUE", "a@ROLE", "a:VALUE@ROLE"
  std::vector<std::string> processes;  // names or globs; empty: all
  SwitchSide off;
  SwitchSide on;
  bool deployed_on = true;
  std::vector<std::string> needs;      // `requires` in the file: these must be on when this is on
  std::vector<std::string> conflicts;  // these must be off when this is on
  std::string apply = "restart";       // restart | request | patch
  double cost_s = 0;
  std::string phase;        // prefill | decode | both | empty: unknown
  bool working_off = true;  // false: its off side is known not to launch
  double shift = -1;        // declared D of the honest on side; negative: not stated
  std::string value_of{};   // of a value: the switch it is a value of ("a", "a@ROLE"); all of them share the off side
  std::string value{};      // of a value: its name
  std::string role{};       // of a switch for one role: that role
};

struct RequestSpec {
  double temperature = 0;
  std::string extra;  // a JSON object merged into each request; empty: none
  int answer_tokens = 24;
  int thinking_tokens = 0;  // on top of answer_tokens, for models that reason before they answer
};

/// The repository whose commits and patches the patch switches turn.
struct SourceSpec {
  std::string repository;          // its folder; empty: there is no [source]
  std::vector<std::string> build;  // argv run in the working tree after each change; empty: nothing to build
  double build_timeout_s = 3600;
};

class OperatorConversation;
struct RankedSwitches;

/// What the operator gave beside the deployment file; the case folder has copies.
struct GivenBeside {
  std::shared_ptr<const OperatorConversation> conversation{};
  std::shared_ptr<const RankedSwitches> ranks{};
  bool redact = false;  // prompts and replies are kept and shown by length and hash alone
};

/// A deployment file: processes, endpoints, switches (formats: docs/deployment.md).
struct Deployment {
  std::string name;
  std::string restart = "allowed";  // allowed | never
  double start_timeout_s = 60;
  std::vector<ProcessSpec> processes;
  std::vector<EndpointSpec> endpoints;
  RequestSpec request;
  std::vector<SwitchSpec> switches;
  std::map<std::string, std::int64_t> facts;  // window, chunk, page, index_topk, max_len
  SourceSpec source{};
  GivenBeside given{};
};

/// What plumb understands of one place of a deployment file.
struct FileNote {
  std::uint32_t line = 0;
  std::string key;  // "[[process]] ready http"; "[[process]]" where the table begins
};

/// Parses a deployment file. Every key is known or refused with file, line and what to write instead.
/// `notes`, if there: every key that was read, by line.
Result<Deployment> parse_deployment(std::string_view toml, const std::string& file_name,
                                    std::vector<FileNote>* notes = nullptr);
Result<Deployment> load_deployment(const std::filesystem::path& file);

/// One side per switch, in the order of Deployment::switches; true = on.
using Variant = std::vector<bool>;

Variant as_deployed(const Deployment& deployment);
/// Every switch off except those without a working off side.
Variant reference_variant(const Deployment& deployment);
/// Whether `requires` and `conflicts` allow the variant; the error names the two switches.
Result<void> check_variant(const Deployment& deployment, const Variant& variant);
/// "attention.split_k=on prefix_cache=off": stable, for journals and reports.
std::string describe(const Deployment& deployment, const Variant& variant);

}  // namespace plumb::investigator

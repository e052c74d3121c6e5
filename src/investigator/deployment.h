#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace plumb::investigator {

/// One process of a deployment: argv, and how to know that it is ready and gone.
struct ProcessSpec {
  std::string name;
  std::string role = "server";       // server | prefill | decode | router
  std::vector<std::string> command;  // argv, no shell; "{port:NAME}" is replaced by the port given to process NAME
  std::map<std::string, std::string> env;
  std::string cwd;  // empty: the directory plumb was started in
  std::vector<std::string> after;
  std::string ready_http;       // path that must answer 200; empty: not asked
  std::string ready_log_regex;  // empty: not asked
  bool ready_generate = true;   // one real generation must be answered
  int stop_signal = 15;
  double stop_grace_s = 5;
};

struct EndpointSpec {
  std::string url;                  // may hold {port:NAME}
  std::string api = "completions";  // completions | chat
  std::string model;                // empty: what /v1/models says
  std::string key_env;              // name of the environment variable that holds the key, never the key
  std::map<std::string, std::string> headers;
  int max_in_flight = 1;
};

/// What one side of a switch adds to a launch or to each request.
struct SwitchSide {
  std::map<std::string, std::string> env;
  std::vector<std::string> args;
  std::string body;  // a JSON object merged into each request; empty: none
};

/// A two-sided switch of the deployment; off is the reference side by convention.
struct SwitchSpec {
  std::string name;
  std::vector<std::string> processes;  // names or globs; empty: all
  SwitchSide off;
  SwitchSide on;
  bool deployed_on = true;
  std::vector<std::string> needs;      // `requires` in the file: these must be on when this is on
  std::vector<std::string> conflicts;  // these must be off when this is on
  std::string apply = "restart";       // restart | request
  double cost_s = 0;
  std::string phase;        // prefill | decode | both | empty: unknown
  bool working_off = true;  // false: its off side is known not to launch
  double shift = -1;        // declared D of the honest on side; negative: not stated
};

struct RequestSpec {
  double temperature = 0;
  std::string extra;  // a JSON object merged into each request; empty: none
  int answer_tokens = 24;
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
};

/// Parses a deployment file. Every key is known or refused with file, line and what is allowed there; what later
/// versions will support (via ssh, docker, patch switches, more than two sides…) is refused as such.
Result<Deployment> parse_deployment(std::string_view toml, const std::string& file_name);
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

#include "investigator/deployment.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <signal.h>

#include "base/durable_file.h"
#include "investigator/deployment_check.h"
#include "investigator/model_facts.h"
#include "investigator/switch_drafts.h"
#include "investigator/toml_table.h"

namespace plumb::investigator {
namespace {

constexpr std::size_t kMaxFileBytes = 1u << 20;
// The parser recurses over tables, and a dotted key makes a table a dot.
constexpr std::ptrdiff_t kMaxDotsPerLine = 256;
constexpr double kMaxSeconds = 1e6;
constexpr std::int64_t kMaxFact = 1 << 24;  // tokens or entries: more than any context has

// What the probes write into a request themselves and read replies by: another value would change what is measured.
constexpr std::array kOwnKeys{"prompt", "messages", "max_tokens", "n", "stream", "echo", "stop"};
// Of every request alike, where the deployment file has a place of its own for them or no probe reads them; a switch
// may turn them.
constexpr std::array kOwnKeysOfExtra{"logprobs", "model", "temperature"};

void read_header(TomlTable in, Deployment& deployment) {
  in.text("name", deployment.name);
  in.choice("restart", {"allowed", "never"}, deployment.restart);
  in.number("start_timeout_s", 0.1, 86400, deployment.start_timeout_s);
  int max_parallel = 1;
  in.integer("max_parallel", 1, 1, max_parallel);  // one launch at a time is all there is
  const toml::node* config = in.toml().get("model_config");
  std::string file;
  in.text("model_config", file);
  in.instead("timeout_s", "write start_timeout_s");
  in.refuse_others();
  if (config == nullptr || file.empty()) return;
  auto facts = read_model_facts(file);
  if (!facts) return in.wrong(*config, "model_config", facts.error().message);
  deployment.facts = std::move(*facts);  // [facts] is read later and wins
}

void read_ready(TomlTable in, ProcessSpec& process) {
  const toml::node* http = in.toml().get("http");
  in.text("http", process.ready_http);
  if (http != nullptr && (process.ready_http.empty() || process.ready_http[0] != '/' ||
                          std::any_of(process.ready_http.begin(), process.ready_http.end(),
                                      [](unsigned char c) { return c <= 0x20 || c == 0x7f; })))
    in.wrong(*http, "http", "must be a path as \"/health\"");
  in.text("log", process.ready_log_regex);
  in.boolean("generate", process.ready_generate);
  in.refuse_others();
}

void read_stop(TomlTable in, ProcessSpec& process) {
  static const std::map<std::string, int> kSignals{{"TERM", SIGTERM}, {"INT", SIGINT},   {"QUIT", SIGQUIT},
                                                   {"HUP", SIGHUP},   {"KILL", SIGKILL}, {"USR1", SIGUSR1},
                                                   {"USR2", SIGUSR2}};
  std::string signal = "TERM";
  in.choice("signal", {"TERM", "INT", "QUIT", "HUP", "KILL", "USR1", "USR2"}, signal);
  if (const auto found = kSignals.find(signal); found != kSignals.end()) process.stop_signal = found->second;
  in.number("grace_s", 0, 3600, process.stop_grace_s);
  std::vector<std::string> wait;
  const toml::node* waits = in.toml().get("wait");
  in.texts("wait", wait);
  for (const std::string& what : wait)
    if (what != "port" && what != "processes" && what != "gpu_memory")
      in.wrong(*waits, "wait", fmt::format("\"{}\" is none of port, processes, gpu_memory", what));
  // The other two are always waited for.
  if (waits != nullptr) process.wait_gpu_memory = std::count(wait.begin(), wait.end(), "gpu_memory") > 0;
  if (process.wait_gpu_memory && process.gpus.empty())
    in.wrong(*waits, "wait", "gpu_memory needs gpus = [0, …] of the process");
  in.number("wait_s", 0, 3600, process.stop_wait_s);
  in.refuse_others();
}

// Where it runs and on what.
void read_place(TomlTable& in, ProcessSpec& process) {
  in.choice("via", {"local", "ssh", "docker", "kubectl", "srun"}, process.via);
  in.text("host", process.host);
  in.text("image", process.image);
  in.texts("via_args", process.via_args);
  in.integers("gpus", 0, 1023, process.gpus);
  const toml::node* cpus = in.toml().get("cpus");
  in.text("cpus", process.cpus);
  if (cpus != nullptr && !is_cpu_list(process.cpus)) {
    in.wrong(*cpus, "cpus", "must be a list of numbers and ranges, as \"0-31,64\"");
    process.cpus.clear();
  }
}

ProcessSpec read_process(TomlTable in) {
  ProcessSpec process;
  in.needed_text("name", "name = \"server\"", process.name);
  in.reader().remember("process " + process.name, in.toml().source());
  in.choice("role", {"server", "prefill", "decode", "router"}, process.role);
  in.needed_texts("command", "command = [\"PROGRAM\", \"ARGUMENT\"]", process.command);
  in.text_map("env", process.env);
  in.text("cwd", process.cwd);
  in.texts("after", process.after);
  if (auto ready = in.table("ready")) read_ready(*ready, process);
  read_place(in, process);
  process.wait_gpu_memory =
      !process.gpus.empty() && (process.via == "local" || process.via == "docker") && process.host.empty();
  if (auto stop = in.table("stop")) read_stop(*stop, process);
  std::string log = "case";
  in.choice("log", {"case"}, log);
  in.boolean("shell", process.shell);
  if (process.shell && process.command.size() > 1)
    in.wrong(*in.toml().get("command"), "command", "with shell = true must be one string: the line for sh");
  in.instead("cmd", "write command");
  in.instead("args", "append them to command");
  in.instead("environment", "write env");
  in.refuse_others();
  return process;
}

// A header as HTTP allows it: a request with another one would fail each time it is sent.
void read_headers(TomlTable& in, EndpointSpec& endpoint) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";  // of a token, besides letters and digits (RFC 9110, 5.6.2)
  in.text_map("headers", endpoint.headers);
  const auto* table = in.toml().get_as<toml::table>("headers");
  if (table == nullptr) return;
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    const std::string& text = endpoint.headers[name];
    const bool token = std::all_of(name.begin(), name.end(), [&](unsigned char c) {
      return (c < 0x80 && std::isalnum(c) != 0) || kMarks.find(static_cast<char>(c)) != std::string_view::npos;
    });
    const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!token)
      in.reader().refuse(key.source(), fmt::format("header \"{}\": a name is letters, digits and {}", name, kMarks));
    else if (std::any_of(text.begin(), text.end(), control))
      in.reader().refuse(key.source(), fmt::format("header {} holds a control character", name));
    else if (lower == "content-length" || lower == "transfer-encoding")
      in.reader().refuse(key.source(), fmt::format("header {} is plumb's own: it says how long a request is", name));
  }
}

EndpointSpec read_endpoint(TomlTable in, std::size_t index) {
  EndpointSpec endpoint;
  in.reader().remember(fmt::format("endpoint {}", index), in.toml().source());
  in.needed_text("url", "url = \"http://127.0.0.1:{port:NAME}\"", endpoint.url);
  in.choice("api", {"completions", "chat"}, endpoint.api);
  in.text("model", endpoint.model);
  in.text("key_env", endpoint.key_env);
  read_headers(in, endpoint);
  in.integer("max_in_flight", 1, 1024, endpoint.max_in_flight);
  endpoint.name = fmt::format("endpoint{}", index);
  in.text("name", endpoint.name);
  in.choice("role", {"server", "prefill", "decode", "router"}, endpoint.role);
  in.number("requests_per_min", 0.01, 1e6, endpoint.requests_per_min);
  in.integer("max_tokens_total", 1, std::int64_t{1} << 50, endpoint.max_tokens_total);
  in.instead("key", "write key_env = \"NAME\", the variable that holds it: keys are never stored");
  in.instead("api_key", "write key_env = \"NAME\", the variable that holds it: keys are never stored");
  in.refuse_others();
  return endpoint;
}

void read_request(TomlTable in, RequestSpec& request) {
  in.number("temperature", 0, 100, request.temperature);
  in.json("extra", request.extra);
  in.refuse_own("extra", kOwnKeys);
  in.refuse_own("extra", kOwnKeysOfExtra);
  in.integer("answer_tokens", 1, 1000000, request.answer_tokens);
  in.integer("thinking_tokens", 0, 1000000, request.thinking_tokens);
  in.instead("thinking",
             "turn it off in extra, as extra = {chat_template_kwargs = {thinking = false}}, or leave room "
             "for it with thinking_tokens");
  in.instead("max_tokens", "write answer_tokens");
  in.refuse_others();
}

SwitchSide read_side(TomlTable in) {
  SwitchSide side;
  in.text_map("env", side.env);
  in.texts("args", side.args);
  in.json("body", side.body);
  in.refuse_own("body", kOwnKeys);
  in.text("patch", side.patch);
  in.text("endpoint", side.endpoint);
  in.refuse_others();
  return side;
}

void read_sides(TomlTable in, SwitchDraft& draft) {
  if (const auto off = in.needed_table("off", "off = {}")) draft.spec.off = read_side(*off);
  for (const auto& [key, value] : in.toml()) {
    if (key.str() == "off") continue;
    const std::string name(key.str());
    if (!is_name(name))
      in.reader().refuse(key.source(),
                         fmt::format("side \"{}\": use 1 to 100 letters, digits, '_', '-' and '.'", name));
    else if (const auto side = in.needed_table(name.c_str(), "on = {}"))
      draft.values.emplace_back(name, read_side(*side));
  }
  if (draft.values.empty()) (void)in.need("on", "on = {}");
}

SwitchDraft read_switch(TomlTable in) {
  SwitchDraft draft;
  SwitchSpec& spec = draft.spec;
  in.needed_text("name", "name = \"prefix_cache\"", spec.name);
  in.reader().remember("switch " + spec.name, in.toml().source());
  in.texts("processes", spec.processes);
  if (const auto sides = in.needed_table("sides", "sides = {off = {…}, on = {…}}")) read_sides(*sides, draft);
  const bool many = draft.has_many_sides();
  const toml::node* deployed = many ? in.need("deployed", "deployed = \"SIDE\"") : in.toml().get("deployed");
  draft.deployed = many ? "off" : "on";
  in.text("deployed", draft.deployed);
  if (deployed != nullptr && draft.deployed != "off" &&
      std::none_of(draft.values.begin(), draft.values.end(),
                   [&](const auto& value) { return value.first == draft.deployed; }))
    in.wrong(*deployed, "deployed", fmt::format("\"{}\" is none of {}", draft.deployed, draft.side_names()));
  spec.deployed_on = draft.deployed == "on";
  in.texts("requires", spec.needs);
  in.texts("conflicts", spec.conflicts);
  in.choice("apply", {"restart", "request", "patch"}, spec.apply);
  in.number("cost_s", 0, kMaxSeconds, spec.cost_s);
  in.choice("phase", {"prefill", "decode", "both"}, spec.phase);
  in.boolean("working_off", spec.working_off);
  in.number("shift", 0, 1e6, spec.shift);
  in.boolean("per_role", draft.per_role);
  in.instead("default", "write deployed: the side that runs now");
  in.instead("on", "write sides = {off = {…}, on = {…}}");
  in.instead("off", "write sides = {off = {…}, on = {…}}");
  in.refuse_others();
  return draft;
}

void read_source(TomlTable in, SourceSpec& source) {
  in.needed_text("repository", "repository = \"FOLDER\"", source.repository);
  in.texts("build", source.build);
  in.number("build_timeout_s", 1, 86400, source.build_timeout_s);
  in.refuse_others();
}

void read_facts(TomlTable in, std::map<std::string, std::int64_t>& facts) {
  for (const char* name : {"window", "chunk", "page", "index_topk", "max_len"}) {
    std::int64_t value = -1;
    in.integer(name, 1, kMaxFact, value);
    if (value > 0) facts[name] = value;
  }
  in.instead("ratios", "state the page: a multiple of every ratio");
  in.refuse_others();
}

template <class Item, class Read>
void read_list(TomlTable& file, const char* key, std::vector<Item>& items, Read read) {
  const toml::node* node = file.find(key);
  if (node == nullptr) return;
  const auto* array = node->as_array();
  if (array == nullptr) return file.wrong(*node, key, fmt::format("must be a list of tables: write [[{}]]", key));
  for (const toml::node& entry : *array) {
    const auto* table = entry.as_table();
    if (table == nullptr) return file.wrong(entry, key, fmt::format("must hold tables: write [[{}]]", key));
    const std::string name = fmt::format("[[{}]]", key);
    file.reader().note(table->source(), name);
    items.push_back(read(TomlTable(file.reader(), *table, name), items.size()));
  }
}

// What the parser must not be given: it recurses over dots, and no TOML holds control characters.
Result<void> check_text(std::string_view text, const std::string& file_name) {
  if (text.size() > kMaxFileBytes)
    return error("{}: longer than {} bytes: this is no deployment file", file_name, kMaxFileBytes);
  int line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view shown = text.substr(begin, end - begin);
    if (std::any_of(shown.begin(), shown.end(),
                    [](unsigned char c) { return (c < 0x20 && c != '\t' && c != '\r') || c == 0x7f; }))
      return error("{}:{}: a control character: is this a text file?", file_name, line);
    if (std::count(shown.begin(), shown.end(), '.') > kMaxDotsPerLine)
      return error("{}:{}: more than {} dots on one line: break it into several", file_name, line, kMaxDotsPerLine);
    begin = end + 1;
  }
  return {};
}

std::string stem(const std::string& file_name) { return std::filesystem::path(file_name).stem().string(); }

}  // namespace

Result<Deployment> parse_deployment(std::string_view text, const std::string& file_name,
                                    std::vector<FileNote>* notes) try {
  if (auto checked = check_text(text, file_name); !checked) return tl::unexpected(checked.error());
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) return error("{}:{}: {}", file_name, parsed.error().source().begin.line, parsed.error().description());

  Reader reader(file_name);
  TomlTable file(reader, parsed.table(), "the file");
  Deployment deployment;
  std::vector<SwitchDraft> drafts;
  if (const auto header = file.table("deployment")) read_header(*header, deployment);
  if (deployment.name.empty()) deployment.name = stem(file_name);
  read_list(file, "process", deployment.processes,
            [](TomlTable in, std::size_t) { return read_process(std::move(in)); });
  read_list(file, "endpoint", deployment.endpoints,
            [](TomlTable in, std::size_t index) { return read_endpoint(std::move(in), index); });
  if (const auto request = file.table("request")) read_request(*request, deployment.request);
  read_list(file, "switch", drafts, [](TomlTable in, std::size_t) { return read_switch(std::move(in)); });
  if (const auto facts = file.table("facts")) read_facts(*facts, deployment.facts);
  if (const auto source = file.table("source")) read_source(*source, deployment.source);
  file.refuse_others();
  if (reader.failed()) return error(*reader.failed());
  // A switch that was expanded stands where its table does.
  const Locate locate = [&](const std::string& item) { return reader.place(item.substr(0, item.find_first_of(":@"))); };
  auto switches = expand_switches(drafts, deployment.processes, locate);
  if (!switches) return tl::unexpected(switches.error());
  deployment.switches = std::move(*switches);
  if (auto checked = check_deployment(deployment, locate); !checked) return tl::unexpected(checked.error());
  if (notes != nullptr) *notes = reader.notes();
  return deployment;
} catch (const ParserAssertion&) {
  return error("{}: not TOML, and broken in a way that the parser has no words for", file_name);
}

Result<Deployment> load_deployment(const std::filesystem::path& file) {
  const auto text = read_file(file, kMaxFileBytes);
  if (!text) return tl::unexpected(text.error());
  return parse_deployment(*text, file.string());
}

}  // namespace plumb::investigator

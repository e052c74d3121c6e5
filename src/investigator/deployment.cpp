#include "investigator/deployment.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sstream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "investigator/deployment_check.h"

#define TOML_EXCEPTIONS 0
#define TOML_MAX_NESTED_VALUES 16
#include <toml++/toml.h>

namespace plumb::investigator {
namespace {

constexpr std::size_t kMaxFileBytes = 1u << 20;
// The parser recurses over tables, and a dotted key makes a table a dot.
constexpr std::ptrdiff_t kMaxDotsPerLine = 256;
constexpr int kMaxJsonDepth = 32;
constexpr double kMaxSeconds = 1e6;

using Names = std::initializer_list<const char*>;

// Remembers the first thing that was wrong: readers carry on with defaults, so that parsing stays a plain list of keys.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  std::string at(const toml::source_region& source) const { return fmt::format("{}:{}: ", file_, source.begin.line); }
  void refuse(const toml::source_region& source, const std::string& what) {
    if (!failed_) failed_ = at(source) + what;
  }
  void remember(const std::string& item, const toml::source_region& source) { places_[item] = at(source); }
  std::string place(const std::string& item) const {
    const auto found = places_.find(item);
    return found == places_.end() ? file_ + ": " : found->second;
  }
  const std::optional<std::string>& failed() const { return failed_; }

 private:
  std::string file_;
  std::optional<std::string> failed_;
  std::map<std::string, std::string> places_;  // item -> "file:line: "
};

bool holds_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

nlohmann::json to_json(const toml::node& node, Reader& reader, int depth) {
  if (depth > kMaxJsonDepth) {
    reader.refuse(node.source(), fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    return nullptr;
  }
  if (const auto* table = node.as_table()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = to_json(value, reader, depth + 1);
    return object;
  }
  if (const auto* array = node.as_array()) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& value : *array) list.push_back(to_json(value, reader, depth + 1));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return integer->get();
  if (const auto* yes = node.as_boolean()) return yes->get();
  if (const auto* number = node.as_floating_point(); number != nullptr && std::isfinite(number->get()))
    return number->get();
  reader.refuse(node.source(), "JSON has no dates, times, infinities and NaN: write a string or a finite number");
  return nullptr;
}

// One table of the file: asks for each key that may be there, then refuses the others.
class Table {
 public:
  Table(Reader& reader, const toml::table& table, std::string name)
      : reader_(reader), table_(table), name_(std::move(name)) {}

  const toml::node* find(const char* key) {
    known_.push_back(key);
    return table_.get(key);
  }
  const toml::node* need(const char* key, const char* example) {
    const toml::node* node = find(key);
    if (node == nullptr) reader_.refuse(table_.source(), fmt::format("{} has no {}: add {}", name_, key, example));
    return node;
  }

  void text(const char* key, std::string& value) { text_of(find(key), key, value); }
  void needed_text(const char* key, const char* example, std::string& value) {
    text_of(need(key, example), key, value);
  }

  void choice(const char* key, Names allowed, std::string& value) {
    const toml::node* node = find(key);
    text_of(node, key, value);
    if (node != nullptr && std::find(allowed.begin(), allowed.end(), value) == allowed.end())
      wrong(*node, key, fmt::format("\"{}\" is none of {}", value, fmt::join(allowed, ", ")));
  }

  void number(const char* key, double low, double high, double& value) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto given = node->value<double>();
    if (!node->is_number() || !given || !(*given >= low && *given <= high))
      return wrong(*node, key, fmt::format("must be a number from {} to {}", low, high));
    value = *given;
  }

  template <class Integer>
  void integer(const char* key, std::int64_t low, std::int64_t high, Integer& value) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto* given = node->as_integer();
    if (given == nullptr || given->get() < low || given->get() > high)
      return wrong(*node, key, fmt::format("must be an integer from {} to {}", low, high));
    value = static_cast<Integer>(given->get());
  }

  void boolean(const char* key, bool& value) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto* given = node->as_boolean();
    if (given == nullptr) return wrong(*node, key, "must be true or false");
    value = given->get();
  }

  void texts(const char* key, std::vector<std::string>& values) { texts_of(find(key), key, values); }
  void needed_texts(const char* key, const char* example, std::vector<std::string>& values) {
    const toml::node* node = need(key, example);
    texts_of(node, key, values);
    if (node != nullptr && (values.empty() || values[0].empty()))
      wrong(*node, key, fmt::format("must not be empty: write {}", example));
  }

  void text_map(const char* key, std::map<std::string, std::string>& values) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto* table = node->as_table();
    if (table == nullptr) return wrong(*node, key, "must be a table of strings, as {NAME = \"value\"}");
    for (const auto& [name, entry] : *table) {
      const std::string entry_key = fmt::format("{}.{}", key, name.str());
      if (name.empty() || name.str().find('=') != std::string_view::npos || holds_nul(std::string(name.str())))
        return wrong(entry, entry_key, "a name is not empty and holds neither '=' nor NUL");
      text_of(&entry, entry_key, values[std::string(name.str())]);
    }
  }

  void json(const char* key, std::string& value) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!node->is_table()) return wrong(*node, key, "must be a table");
    value = to_json(*node, reader_, 0).dump();
    if (value == "{}") value.clear();
  }

  std::optional<Table> table(const char* key) { return table_of(find(key), key); }
  std::optional<Table> needed_table(const char* key, const char* example) { return table_of(need(key, example), key); }

  // Known by the format, of no effect yet: refused by name, so that nobody believes that it works.
  void later(const char* key, const std::string& instead) {
    if (const toml::node* node = find(key); node != nullptr) wrong(*node, key, "is not supported yet: " + instead);
    known_.pop_back();
  }

  void refuse_others() {
    for (const auto& [key, value] : table_)
      if (std::find(known_.begin(), known_.end(), key.str()) == known_.end())
        reader_.refuse(key.source(), fmt::format("unknown key \"{}\" in {}; known here: {}", key.str(), name_,
                                                 fmt::join(known_, ", ")));
  }

  void wrong(const toml::node& node, const std::string& key, const std::string& what) {
    reader_.refuse(node.source(), fmt::format("{}: {} {}", name_, key, what));
  }
  Reader& reader() { return reader_; }
  const toml::table& toml() const { return table_; }

 private:
  void text_of(const toml::node* node, const std::string& key, std::string& value) {
    if (node == nullptr) return;
    const auto* given = node->as_string();
    if (given == nullptr) return wrong(*node, key, "must be a string");
    if (holds_nul(given->get())) return wrong(*node, key, "must not hold a NUL character");
    value = given->get();
  }
  void texts_of(const toml::node* node, const std::string& key, std::vector<std::string>& values) {
    if (node == nullptr) return;
    const auto* array = node->as_array();
    if (array == nullptr) return wrong(*node, key, "must be an array of strings");
    for (const toml::node& entry : *array) text_of(&entry, key, values.emplace_back());
  }
  std::optional<Table> table_of(const toml::node* node, const char* key) {
    if (node == nullptr) return std::nullopt;
    if (const auto* table = node->as_table()) return Table(reader_, *table, fmt::format("{} {}", name_, key));
    wrong(*node, key, "must be a table");
    return std::nullopt;
  }

  Reader& reader_;
  const toml::table& table_;
  std::string name_;
  std::vector<std::string> known_;
};

void read_header(Table in, Deployment& deployment) {
  in.text("name", deployment.name);
  in.choice("restart", {"allowed", "never"}, deployment.restart);
  in.number("start_timeout_s", 0.1, 86400, deployment.start_timeout_s);
  int max_parallel = 1;
  in.integer("max_parallel", 1, 1, max_parallel);  // one launch at a time is all there is
  in.later("model_config", "state what it would tell under [facts]");
  in.refuse_others();
}

void read_ready(Table in, ProcessSpec& process) {
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

void read_stop(Table in, ProcessSpec& process) {
  static const std::map<std::string, int> kSignals{{"TERM", SIGTERM}, {"INT", SIGINT},   {"QUIT", SIGQUIT},
                                                   {"HUP", SIGHUP},   {"KILL", SIGKILL}, {"USR1", SIGUSR1},
                                                   {"USR2", SIGUSR2}};
  std::string signal = "TERM";
  in.choice("signal", {"TERM", "INT", "QUIT", "HUP", "KILL", "USR1", "USR2"}, signal);
  if (const auto found = kSignals.find(signal); found != kSignals.end()) process.stop_signal = found->second;
  in.number("grace_s", 0, 3600, process.stop_grace_s);
  in.later("wait", "plumb always waits until the port is closed and every process is gone, and for nothing else");
  in.refuse_others();
}

ProcessSpec read_process(Table in) {
  ProcessSpec process;
  in.needed_text("name", "name = \"server\"", process.name);
  in.reader().remember("process " + process.name, in.toml().source());
  in.choice("role", {"server", "prefill", "decode", "router"}, process.role);
  in.needed_texts("command", "command = [\"PROGRAM\", \"ARGUMENT\"]", process.command);
  in.text_map("env", process.env);
  in.text("cwd", process.cwd);
  in.texts("after", process.after);
  if (auto ready = in.table("ready")) read_ready(*ready, process);
  if (auto stop = in.table("stop")) read_stop(*stop, process);
  std::string log = "case";
  if (const toml::node* node = in.find("via"); node != nullptr && node->value<std::string>() != "local")
    in.wrong(*node, "via", "other than \"local\" is not supported yet: start plumb on the machine of the processes");
  in.choice("log", {"case"}, log);
  in.later("gpus", "set CUDA_VISIBLE_DEVICES in env");
  in.later("cpus", "begin the command with \"taskset\", \"-c\", \"LIST\"");
  in.later("host", "processes run on this machine");
  in.later("shell", "command is argv; for a shell write [\"sh\", \"-c\", \"…\"]");
  in.refuse_others();
  return process;
}

EndpointSpec read_endpoint(Table in, std::size_t index) {
  EndpointSpec endpoint;
  in.reader().remember(fmt::format("endpoint {}", index), in.toml().source());
  in.needed_text("url", "url = \"http://127.0.0.1:{port:NAME}\"", endpoint.url);
  in.choice("api", {"completions", "chat"}, endpoint.api);
  in.text("model", endpoint.model);
  in.text("key_env", endpoint.key_env);
  in.text_map("headers", endpoint.headers);
  for (const auto& [name, value] : endpoint.headers)
    for (const unsigned char c : name + value)
      if (c < 0x20 || c == 0x7f)
        in.reader().refuse(in.toml().source(), fmt::format("header {} holds a control character", name));
  in.integer("max_in_flight", 1, 1024, endpoint.max_in_flight);
  in.later("role", "requests go to every endpoint alike");
  in.later("requests_per_min", "use max_in_flight");
  in.later("max_tokens_total", "use --max-tokens");
  in.refuse_others();
  return endpoint;
}

void read_request(Table in, RequestSpec& request) {
  in.number("temperature", 0, 100, request.temperature);
  in.json("extra", request.extra);
  in.integer("answer_tokens", 1, 1000000, request.answer_tokens);
  in.later("thinking_tokens", "turn thinking off in extra");
  in.later("thinking", "turn thinking off in extra");
  in.refuse_others();
}

SwitchSide read_side(Table in) {
  SwitchSide side;
  in.text_map("env", side.env);
  in.texts("args", side.args);
  in.json("body", side.body);
  in.later("patch", "only env, args and body can be switched");
  in.refuse_others();
  return side;
}

void read_sides(Table in, SwitchSpec& spec) {
  if (const auto off = in.needed_table("off", "off = {}")) spec.off = read_side(*off);
  if (const auto on = in.needed_table("on", "on = {}")) spec.on = read_side(*on);
  for (const auto& [key, value] : in.toml())
    if (key.str() != "off" && key.str() != "on")
      in.reader().refuse(key.source(),
                         fmt::format("side \"{}\": more sides than off and on are not supported yet: split "
                                     "the switch",
                                     key.str()));
}

SwitchSpec read_switch(Table in) {
  SwitchSpec spec;
  in.needed_text("name", "name = \"prefix_cache\"", spec.name);
  in.reader().remember("switch " + spec.name, in.toml().source());
  in.texts("processes", spec.processes);
  if (const auto sides = in.needed_table("sides", "sides = {off = {…}, on = {…}}")) read_sides(*sides, spec);
  std::string deployed = "on";
  in.choice("deployed", {"on", "off"}, deployed);
  spec.deployed_on = deployed == "on";
  in.texts("requires", spec.needs);
  in.texts("conflicts", spec.conflicts);
  if (const auto* apply = in.toml().get("apply"); apply != nullptr && apply->value<std::string>() == "patch")
    in.wrong(*apply, "apply", "= \"patch\" is not supported yet: use restart or request");
  in.choice("apply", {"restart", "request"}, spec.apply);
  in.number("cost_s", 0, kMaxSeconds, spec.cost_s);
  in.choice("phase", {"prefill", "decode", "both"}, spec.phase);
  in.boolean("working_off", spec.working_off);
  in.number("shift", 0, 1e6, spec.shift);
  in.refuse_others();
  return spec;
}

void read_facts(Table in, std::map<std::string, std::int64_t>& facts) {
  for (const char* name : {"window", "chunk", "page", "index_topk", "max_len"}) {
    std::int64_t value = -1;
    in.integer(name, 1, std::numeric_limits<std::int64_t>::max(), value);
    if (value > 0) facts[name] = value;
  }
  in.later("ratios", "state the page, the window and the chunk");
  in.refuse_others();
}

template <class Item, class Read>
void read_list(Table& file, const char* key, std::vector<Item>& items, Read read) {
  const toml::node* node = file.find(key);
  if (node == nullptr) return;
  const auto* array = node->as_array();
  if (array == nullptr) return file.wrong(*node, key, fmt::format("must be a list of tables: write [[{}]]", key));
  for (const toml::node& entry : *array) {
    const auto* table = entry.as_table();
    if (table == nullptr) return file.wrong(entry, key, fmt::format("must hold tables: write [[{}]]", key));
    items.push_back(read(Table(file.reader(), *table, fmt::format("[[{}]]", key)), items.size()));
  }
}

Result<void> check_size(std::string_view text, const std::string& file_name) {
  if (text.size() > kMaxFileBytes)
    return error("{}: longer than {} bytes: this is no deployment file", file_name, kMaxFileBytes);
  int line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view shown = text.substr(begin, end - begin);
    if (std::count(shown.begin(), shown.end(), '.') > kMaxDotsPerLine)
      return error("{}:{}: more than {} dots on one line: break it into several", file_name, line, kMaxDotsPerLine);
    begin = end + 1;
  }
  return {};
}

std::string stem(const std::string& file_name) { return std::filesystem::path(file_name).stem().string(); }

}  // namespace

Result<Deployment> parse_deployment(std::string_view text, const std::string& file_name) {
  if (auto size = check_size(text, file_name); !size) return tl::unexpected(size.error());
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) return error("{}:{}: {}", file_name, parsed.error().source().begin.line, parsed.error().description());

  Reader reader(file_name);
  Table file(reader, parsed.table(), "the file");
  Deployment deployment;
  if (const auto header = file.table("deployment")) read_header(*header, deployment);
  if (deployment.name.empty()) deployment.name = stem(file_name);
  read_list(file, "process", deployment.processes, [](Table in, std::size_t) { return read_process(std::move(in)); });
  read_list(file, "endpoint", deployment.endpoints,
            [](Table in, std::size_t index) { return read_endpoint(std::move(in), index); });
  if (const auto request = file.table("request")) read_request(*request, deployment.request);
  read_list(file, "switch", deployment.switches, [](Table in, std::size_t) { return read_switch(std::move(in)); });
  if (const auto facts = file.table("facts")) read_facts(*facts, deployment.facts);
  file.refuse_others();
  if (reader.failed()) return error(*reader.failed());
  if (auto checked = check_deployment(deployment, [&](const std::string& item) { return reader.place(item); });
      !checked)
    return tl::unexpected(checked.error());
  return deployment;
}

Result<Deployment> load_deployment(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return error("{}: cannot be opened: is it a readable deployment file?", file.string());
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) return error("{}: cannot be read: is it a file?", file.string());
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_deployment(text, file.string());
}

}  // namespace plumb::investigator

#include "investigator/deployment.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>

#include <gtest/gtest.h>
#include <signal.h>

#include "investigator/deployment_check.h"
#include "investigator/launch_command.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

constexpr char kFull[] = R"(
[deployment]
name = "pd"
restart = "allowed"
start_timeout_s = 90
max_parallel = 1

[[process]]
name = "prefill0"
role = "prefill"
command = ["engine", "--port", "{port:prefill0}"]
env = {CUDA_VISIBLE_DEVICES = "0,1"}
cwd = "/tmp"
ready = {http = "/health", log = "ready|listening", generate = false}
stop = {signal = "INT", grace_s = 2.5}
via = "local"
log = "case"

[[process]]
name = "router"
role = "router"
command = ["router", "--prefill", "http://127.0.0.1:{port:prefill0}", "--port", "{port:router}"]
after = ["prefill0"]

[[endpoint]]
url = "http://127.0.0.1:{port:router}"
api = "chat"
model = "m"
key_env = "KEY"
headers = {X-A = "b"}
max_in_flight = 4

[request]
temperature = 0.5
answer_tokens = 32
extra = {chat_template_kwargs = {thinking = false}, seed = 1, list = [1, 2.5, "x"]}

[[switch]]
name = "attention.split_k"
processes = ["prefill*"]
sides = {off = {env = {SPLIT = "0"}}, on = {args = ["--split"], body = {a = {b = true}}}}
deployed = "on"
requires = ["cache"]
cost_s = 3
phase = "decode"
shift = 0.01

[[switch]]
name = "cache"
sides = {off = {args = ["--no-cache"]}, on = {}}
conflicts = ["slow"]
working_off = false

[[switch]]
name = "slow"
sides = {off = {}, on = {body = {slow = 1}}}
deployed = "off"
apply = "request"

[facts]
window = 128
max_len = 4096
)";

TEST(Deployment, EveryKeyOfTheFormIsRead) {
  const auto parsed = parse_deployment(kFull, "pd.toml");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Deployment& d = *parsed;
  EXPECT_EQ(d.name, "pd");
  EXPECT_EQ(d.start_timeout_s, 90);
  ASSERT_EQ(d.processes.size(), 2u);
  EXPECT_EQ(d.processes[0].role, "prefill");
  EXPECT_EQ(d.processes[0].command.back(), "{port:prefill0}");
  EXPECT_EQ(d.processes[0].env.at("CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(d.processes[0].cwd, "/tmp");
  EXPECT_EQ(d.processes[0].ready_http, "/health");
  EXPECT_EQ(d.processes[0].ready_log_regex, "ready|listening");
  EXPECT_FALSE(d.processes[0].ready_generate);
  EXPECT_EQ(d.processes[0].stop_signal, SIGINT);
  EXPECT_EQ(d.processes[0].stop_grace_s, 2.5);
  EXPECT_EQ(d.processes[1].after, std::vector<std::string>{"prefill0"});
  EXPECT_TRUE(d.processes[1].ready_generate);
  ASSERT_EQ(d.endpoints.size(), 1u);
  EXPECT_EQ(d.endpoints[0].api, "chat");
  EXPECT_EQ(d.endpoints[0].model, "m");
  EXPECT_EQ(d.endpoints[0].key_env, "KEY");
  EXPECT_EQ(d.endpoints[0].headers.at("X-A"), "b");
  EXPECT_EQ(d.endpoints[0].max_in_flight, 4);
  EXPECT_EQ(d.request.temperature, 0.5);
  EXPECT_EQ(d.request.answer_tokens, 32);
  EXPECT_EQ(d.request.extra, R"({"chat_template_kwargs":{"thinking":false},"list":[1,2.5,"x"],"seed":1})");
  ASSERT_EQ(d.switches.size(), 3u);
  EXPECT_EQ(d.switches[0].off.env.at("SPLIT"), "0");
  EXPECT_EQ(d.switches[0].on.args, std::vector<std::string>{"--split"});
  EXPECT_EQ(d.switches[0].on.body, R"({"a":{"b":true}})");
  EXPECT_EQ(d.switches[0].needs, std::vector<std::string>{"cache"});
  EXPECT_EQ(d.switches[0].cost_s, 3);
  EXPECT_EQ(d.switches[0].phase, "decode");
  EXPECT_EQ(d.switches[0].shift, 0.01);
  EXPECT_TRUE(d.switches[0].deployed_on);
  EXPECT_EQ(d.switches[1].shift, -1);
  EXPECT_FALSE(d.switches[1].working_off);
  EXPECT_FALSE(d.switches[2].deployed_on);
  EXPECT_EQ(d.switches[2].apply, "request");
  EXPECT_EQ(d.facts, (std::map<std::string, std::int64_t>{{"max_len", 4096}, {"window", 128}}));
}

TEST(Deployment, VariantsFollowRequiresConflictsAndWorkingOff) {
  const auto d = parse_deployment(kFull, "pd.toml");
  ASSERT_TRUE(d);
  EXPECT_EQ(as_deployed(*d), (Variant{true, true, false}));
  EXPECT_EQ(reference_variant(*d), (Variant{false, true, false}));
  EXPECT_EQ(describe(*d, {false, true, true}), "attention.split_k=off cache=on slow=on");
  EXPECT_TRUE(check_variant(*d, {true, true, false}));
  const auto conflict = check_variant(*d, {false, true, true});
  ASSERT_FALSE(conflict);
  EXPECT_EQ(conflict.error().message, "switches cache and slow are both on and conflict");
  EXPECT_FALSE(check_variant(*d, {false, false, false}));
  Deployment free = *d;
  free.switches[1].working_off = true;
  const auto needed = check_variant(free, {true, false, false});
  ASSERT_FALSE(needed);
  EXPECT_EQ(needed.error().message, "switch attention.split_k is on and requires cache, which is off");
}

// A minimal file with one line exchanged or added.
std::string minimal(const std::string& process = "", const std::string& endpoint = "", const std::string& rest = "") {
  return "[[process]]\nname = \"s\"\ncommand = [\"engine\", \"{port:s}\"]\n" + process + "\n" +
         "[[endpoint]]\nurl = \"http://127.0.0.1:{port:s}\"\n" + endpoint + "\n" + rest;
}

std::string message_of(const std::string& text) {
  const auto parsed = parse_deployment(text, "d.toml");
  return parsed ? "accepted" : parsed.error().message;
}

TEST(Deployment, HeadersThatNoRequestMayHoldAreRefusedWithTheirLine) {
  for (const char* bad : {"\"X Y\" = \"b\"", "\"X:\" = \"b\"", "\"X\\u00e9\" = \"b\"", "X = \"a\\nb\"",
                          "Content-length = \"1\"", "Transfer-Encoding = \"chunked\""}) {
    const std::string text = minimal("", std::string("headers = {") + bad + "}\n");
    const std::string line = std::to_string(
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find("headers")), '\n'));
    EXPECT_EQ(message_of(text).rfind("d.toml:" + line + ": header ", 0), 0u) << bad << ": " << message_of(text);
  }
  EXPECT_EQ(message_of(minimal("", "headers = {X-A_1 = \"b c\", Host = \"h\"}\n")), "accepted");
}

TEST(Deployment, UnknownKeysAreRefusedWithFileLineAndWhatIsKnown) {
  EXPECT_EQ(message_of(minimal()), "accepted");
  EXPECT_EQ(message_of(minimal("comand = 1")),
            "d.toml:4: unknown key \"comand\" in [[process]]; did you mean command?; known here: name, role, command, "
            "env, cwd, after, ready, via, host, image, via_args, gpus, cpus, stop, log, shell");
  EXPECT_EQ(message_of(minimal("", "", "[fact]\nwindow = 1")),
            "d.toml:8: unknown key \"fact\" in the file; did you mean facts?; known here: deployment, process, "
            "endpoint, request, switch, facts, source");
  EXPECT_NE(message_of(minimal("colour = 1")).find("in [[process]]; known here"), std::string::npos);
  EXPECT_NE(message_of(minimal("ready = {htp = \"/\"}"))
                .find("d.toml:4: unknown key \"htp\" in [[process]] ready; did you mean http?; known "
                      "here: http, log, generate"),
            std::string::npos);
}

struct Refusal {
  std::string text, part;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.part; }

class Refused : public testing::TestWithParam<Refusal> {};

TEST(Deployment, RequestsKeepWhatTheProbesRelyOn) {
  for (const char* key :
       {"prompt", "messages", "max_tokens", "n", "stream", "echo", "stop", "logprobs", "model", "temperature"}) {
    const auto d = parse_deployment(minimal("", "", fmt::format("[request]\nextra = {{{} = 2}}", key)), "d.toml");
    ASSERT_FALSE(d) << key;
    EXPECT_NE(d.error().message.find(fmt::format("extra.{} is plumb's own", key)), std::string::npos)
        << d.error().message;
  }
  const char* body =
      "[[switch]]\nname = \"a\"\napply = \"request\"\nsides = {{off = {{}}, on = {{body = {{{} = 2}}}}}}";
  EXPECT_FALSE(parse_deployment(minimal("", "", fmt::format(fmt::runtime(body), "stream")), "d.toml"));
  EXPECT_TRUE(parse_deployment(minimal("", "", fmt::format(fmt::runtime(body), "temperature")), "d.toml"));
}

TEST_P(Refused, WithWhatIsWrong) {
  const std::string message = message_of(GetParam().text);
  EXPECT_NE(message.find(GetParam().part), std::string::npos) << message;
  EXPECT_EQ(message.rfind("d.toml:", 0), 0u) << message;
}

std::string with_switch(const std::string& lines, const std::string& sides = "{off = {}, on = {args = [\"x\"]}}") {
  return minimal("", "", "[[switch]]\nname = \"a\"\nsides = " + sides + "\n" + lines);
}

INSTANTIATE_TEST_SUITE_P(
    Instead, Refused,
    testing::Values(
        Refusal{minimal("via = \"telnet\""), "\"telnet\" is none of local, ssh, docker, kubectl, srun"},
        Refusal{minimal("via = \"ssh\""), "via = \"ssh\" needs host"},
        Refusal{minimal("host = \"h\""), "host needs via"}, Refusal{minimal("via = \"docker\""), "needs image"},
        Refusal{minimal("image = \"i\""), "image needs via"},
        Refusal{minimal("via_args = [\"-v\"]"), "those of the program into command"},
        Refusal{minimal("via = \"ssh\"\nhost = \"-oProxyCommand=x\""), "begins with '-'"},
        Refusal{minimal("via = \"kubectl\"\nimage = \"i\"\nready = {http = \"/h\"}"), "add host, or use ready.log"},
        Refusal{minimal("via = \"kubectl\"\nimage = \"i\"\ngpus = [0]\nstop = {wait = [\"gpu_memory\"]}"),
                "the cluster frees it"},
        Refusal{minimal("gpus = [-1]"), "must hold integers from 0 to 1023"},
        Refusal{minimal("cpus = \"3-1\""), "cpus must be a list of numbers and ranges"},
        Refusal{minimal("cpus = \"0,\""), "cpus must be a list of numbers and ranges"},
        Refusal{minimal("shell = true"), "must be one string"},
        Refusal{minimal("stop = {wait = [\"x\"]}"), "\"x\" is none of port, processes, gpu_memory"},
        Refusal{minimal("stop = {wait = [\"gpu_memory\"]}"), "needs gpus"},
        Refusal{minimal("cmd = \"x\""), "cmd is no key of plumb: write command"},
        Refusal{minimal("", "role = \"chef\""), "role \"chef\" is none of"},
        Refusal{minimal("", "api_key = \"x\""), "write key_env"},
        Refusal{minimal("", "name = \"a b\""), "endpoint name \"a b\""},
        Refusal{minimal("", "name = \"e\"", "[[endpoint]]\nurl = \"http://127.0.0.1:{port:s}\"\nname = \"e\""),
                "endpoint \"e\" exists twice"},
        Refusal{minimal("", "requests_per_min = 0"), "from 0.01 to"},
        Refusal{minimal("", "", "[deployment]\nmodel_config = \"https://x/config.json\""), "download the config.json"},
        Refusal{minimal("", "", "[deployment]\nmodel_config = \"/no/such.json\""), "/no/such.json"},
        Refusal{minimal("", "", "[deployment]\nmax_parallel = 2"), "max_parallel must be"},
        Refusal{minimal("", "", "[request]\nthinking = false"), "turn it off in extra"},
        Refusal{minimal("", "", "[facts]\nratios = [4]"), "a multiple of every ratio"},
        Refusal{minimal("", "", "[source]\nrepository = \".\""), "put {source} into a command"},
        Refusal{minimal("env = {A = \"{source}\"}"), "{source} needs a [source]"},
        Refusal{minimal("env = {A = \"{env:}\"}"), "needs the name of an environment variable"},
        Refusal{minimal("env = {A = \"{instance:t}\"}"), "{instance:t} names no process; known: s"},
        Refusal{with_switch("apply = \"patch\""), "no side has a patch"},
        Refusal{with_switch("", "{off = {}, on = {patch = \"f\"}}"), "patch needs apply = \"patch\""},
        Refusal{with_switch("apply = \"patch\"", "{off = {}, on = {patch = \"f\"}}"), "patch needs a [source]"},
        Refusal{with_switch("", "{off = {}, on = {endpoint = \"e\"}}"), "endpoint needs apply = \"request\""},
        Refusal{with_switch("apply = \"request\"", "{off = {}, on = {endpoint = \"e\"}}"),
                "endpoint names no endpoint \"e\"; known: endpoint0"},
        Refusal{with_switch("per_role = true"), "its processes have 1 role"},
        Refusal{with_switch("", "{off = {}, on = {args = [\"x\"]}, auto = {}}"), "has no deployed"},
        Refusal{with_switch("deployed = \"fast\"", "{off = {}, on = {args = [\"x\"]}, auto = {}}"),
                "\"fast\" is none of off, auto, on"},
        Refusal{with_switch("", "{off = {}, \"a b\" = {}}"), "side \"a b\""}));

INSTANTIATE_TEST_SUITE_P(
    Secrets, Refused,
    testing::Values(
        Refusal{minimal("env = {HF_TOKEN = \"hf_abcdef\"}"), "env HF_TOKEN holds a secret by its name"},
        Refusal{minimal("", "headers = {Authorization = \"Bearer abc\"}"), "write \"{env:VARIABLE}\""},
        Refusal{minimal("", "headers = {X-Api-Key = \"abcdefgh\"}"), "keys are never stored"},
        Refusal{with_switch("", "{off = {}, on = {args = [\"--api-key\", \"abcdefgh\"]}}"), "argument --api-key"},
        Refusal{with_switch("", "{off = {}, on = {args = [\"--api-key=abcdefgh\"]}}"), "argument --api-key"},
        Refusal{with_switch("", "{off = {}, on = {env = {DB_PASSWORD = \"abcdefgh\"}}}"), "DB_PASSWORD"}));

INSTANTIATE_TEST_SUITE_P(
    Types, Refused,
    testing::Values(Refusal{"name = ", "d.toml:1: "}, Refusal{"restart =\xc9\x8fort", "d.toml:1: "},
                    Refusal{std::string("a\0\0b = 1", 9), "d.toml:1: a control character"},
                    Refusal{"process = 3", "must be a list of tables"},
                    Refusal{"[process]\nname = \"a\"", "must be a list of tables: write [[process]]"},
                    Refusal{"process = [3]", "must hold tables"},
                    Refusal{"deployment = 3", "deployment must be a table"},
                    Refusal{"[[process]]\nname = \"s\"", "d.toml:1: [[process]] has no command"},
                    Refusal{minimal("command = 3"), "d.toml:4: "},
                    Refusal{minimal("env = {A = 1}"), "env.A must be a string"},
                    Refusal{minimal("env = {\"A=B\" = \"\"}"), "holds neither '='"},
                    Refusal{minimal("env = {A = \"\\u0000\"}"), "NUL"},
                    Refusal{minimal("role = \"chef\""), "\"chef\" is none of server, prefill, decode, router"},
                    Refusal{minimal("ready = {http = \"health\"}"), "must be a path"},
                    Refusal{minimal("ready = {generate = 1}"), "must be true or false"},
                    Refusal{minimal("stop = {signal = \"SEGV\"}"), "is none of TERM"},
                    Refusal{minimal("stop = {grace_s = -1}"), "from 0 to 3600"},
                    Refusal{minimal("stop = {grace_s = nan}"), "from 0 to 3600"},
                    Refusal{minimal("", "max_in_flight = 0"), "from 1 to 1024"},
                    Refusal{minimal("", "headers = {A = \"x\\r\\nB: y\"}"), "control character"},
                    Refusal{minimal("", "", "[request]\nextra = {a = inf}"), "JSON has no"},
                    Refusal{minimal("", "", "[facts]\nwindow = 4294967297"), "from 1 to 16777216"},
                    Refusal{minimal("", "", "[facts]\nchunk = 16777217"), "from 1 to 16777216"},
                    Refusal{minimal("", "", "[facts]\npage = 0"), "from 1 to 16777216"},
                    Refusal{minimal("", "", "[facts]\nindex_topk = -1"), "from 1 to 16777216"},
                    Refusal{minimal("", "", "[facts]\nmax_len = 9223372036854775807"), "from 1 to 16777216"},
                    Refusal{minimal("", "", "[request]\nextra = {a = 2020-01-01}"), "JSON has no"},
                    Refusal{minimal("", "", "[facts]\nwindow = \"x\""), "window must be an integer"},
                    Refusal{minimal("", "", "[deployment]\nrestart = \"maybe\""), "none of allowed, never"},
                    Refusal{with_switch("", "{on = {args = [\"x\"]}}"), "has no off"},
                    Refusal{with_switch("", "{off = {args = [\"x\"]}}"), "has no on"},
                    Refusal{minimal("", "", "[[switch]]\nname = \"a\""), "has no sides"}));

INSTANTIATE_TEST_SUITE_P(
    References, Refused,
    testing::Values(
        Refusal{"[deployment]\nrestart = \"allowed\"", "no [[process]]"},
        Refusal{"[[process]]\nname = \"s\"\ncommand = [\"e\"]", "no [[endpoint]]"},
        Refusal{"[[process]]\nname = \"s\"\ncommand = []", "command must not be empty"},
        Refusal{"[[process]]\nname = \"s\"\ncommand = [\"\"]", "command must not be empty"},
        Refusal{minimal("", "", "[[process]]\nname = \"s\"\ncommand = [\"e\"]"),
                "d.toml:8: process \"s\" exists twice"},
        Refusal{minimal("", "", "[[process]]\nname = \"a/b\"\ncommand = [\"e\"]"), "process name \"a/b\""},
        Refusal{minimal("", "", "[[process]]\nname = \"..\"\ncommand = [\"e\"]"), "process name \"..\""},
        Refusal{minimal("after = [\"t\"]"), "d.toml:1: process s: after names no process \"t\"; known: s"},
        Refusal{minimal("after = [\"s\"]"), "waits for itself"},
        Refusal{minimal("after = [\"t\"]", "", "[[process]]\nname = \"t\"\ncommand = [\"e\"]\nafter = [\"s\"]"),
                "waits for itself"},
        Refusal{minimal("env = {P = \"{port:t}\"}"), "{port:t} names no process; known: s"},
        Refusal{minimal("env = {P = \"{port:s\"}"), "closing brace"},
        Refusal{minimal("", "", "[[endpoint]]\nurl = \"http://127.0.0.1:{port:}\""), "needs the name"},
        Refusal{minimal("", "", "[[endpoint]]\nurl = \"https://127.0.0.1:1\""), "https is not supported yet"},
        Refusal{minimal("", "", "[[endpoint]]\nurl = \"127.0.0.1:1\""), "must be http://HOST:PORT"},
        Refusal{minimal("", "", "[[endpoint]]\nurl = \"http://127.0.0.1:0\""), "must be http://HOST:PORT"},
        Refusal{minimal("", "", "[[endpoint]]\nurl = \"http://127.0.0.1:1/v1\""), "leave the /v1 away"},
        Refusal{minimal("", "", "[[endpoint]]\nurl = \"http://10.0.0.1:1\""), "or the `host` of a process"},
        Refusal{"[[process]]\nname = \"s\"\ncommand = [\"e\"]\nready = {http = \"/h\"}\n[[endpoint]]\nurl = "
                "\"http://127.0.0.1:1\"",
                "put {port:s} into its command"},
        Refusal{minimal("ready = {log = \"(\"}"), "ready.log \"(\""},
        Refusal{minimal("ready = {log = \"(a){99}\"}"), "repetition counts"},
        Refusal{minimal("ready = {log = '(a)\\1'}"), "back-references"},
        Refusal{minimal("", "", "[deployment]\nrestart = \"never\""), "restart = \"never\" with [[process]]"},
        Refusal{with_switch("", "{off = {}, on = {}}"), "both sides are empty"},
        Refusal{with_switch("", "{off = {args = [\"x\"]}, on = {args = [\"x\"]}}"), "both sides are equal"},
        Refusal{with_switch("apply = \"request\""), "env and args need a launch"},
        Refusal{with_switch("processes = [\"x*\"]"), "processes \"x*\" matches no process; known: s"},
        Refusal{with_switch("requires = [\"b\"]"), "requires names no switch \"b\"; known: a"},
        Refusal{with_switch("conflicts = [\"a\"]"), "conflicts itself"},
        Refusal{with_switch("deployed = \"auto\""), "is none of off, on"},
        Refusal{with_switch("deployed = \"off\"\nworking_off = false"), "does not launch"},
        Refusal{with_switch(
                    "requires = [\"b\"]\n[[switch]]\nname = \"b\"\ndeployed = \"off\"\nsides = {off = {}, on = {args "
                    "= [\"y\"]}}"),
                "as deployed: switch a is on and requires b, which is off"}));

Deployment parsed(const std::string& text) {
  auto deployment = parse_deployment(text, "d.toml");
  EXPECT_TRUE(deployment) << deployment.error().message;
  return deployment.value_or(Deployment{});
}

std::vector<std::string> names_of(const Deployment& d) {
  std::vector<std::string> names;
  for (const SwitchSpec& spec : d.switches) names.push_back(spec.name);
  return names;
}

TEST(Switches, MoreThanTwoSidesAreValuesThatExcludeEachOther) {
  const Deployment d = parsed(minimal(
      "", "",
      "[[switch]]\nname = \"attention\"\ndeployed = \"fa3\"\n"
      "sides = {off = {args = [\"--attn\", \"triton\"]}, fa2 = {args = [\"--attn\", \"fa2\"]}, fa3 = {args = "
      "[\"--attn\", "
      "\"fa3\"]}}\n[[switch]]\nname = \"graphs\"\nrequires = [\"attention:fa3\"]\nsides = {off = {}, on = {args = "
      "[\"--graphs\"]}}\n[[switch]]\nname = \"slow\"\ndeployed = \"off\"\nconflicts = [\"attention\"]\nsides = {off = "
      "{}, "
      "on = {args = [\"--slow\"]}}\n"));
  EXPECT_EQ(names_of(d), (std::vector<std::string>{"attention:fa2", "attention:fa3", "graphs", "slow"}));
  EXPECT_EQ(as_deployed(d), (Variant{false, true, true, false}));
  EXPECT_EQ(reference_variant(d), (Variant{false, false, false, false}));
  EXPECT_EQ(describe(d, as_deployed(d)), "attention=fa3 graphs=on slow=off");
  EXPECT_EQ(describe(d, reference_variant(d)), "attention=off graphs=off slow=off");
  const auto args = [&](const Variant& v) { return plain_command(d, v, d.processes[0]).argv; };
  EXPECT_EQ(args({false, true, false, false}), (std::vector<std::string>{"engine", "{port:s}", "--attn", "fa3"}));
  EXPECT_EQ(args({true, false, false, false}), (std::vector<std::string>{"engine", "{port:s}", "--attn", "fa2"}));
  // The off side once, although two switches share it.
  EXPECT_EQ(args({false, false, false, false}), (std::vector<std::string>{"engine", "{port:s}", "--attn", "triton"}));
  EXPECT_FALSE(check_variant(d, {true, true, false, false}));
  EXPECT_FALSE(check_variant(d, {true, false, true, false})) << "graphs needs fa3";
  EXPECT_FALSE(check_variant(d, {true, false, false, true})) << "slow conflicts with every value";
  EXPECT_EQ(with_side(d, as_deployed(d), 1, false), (Variant{false, false, false, false}));
}

TEST(Switches, ARoleCanBeTurnedAlone) {
  const std::string processes =
      "[[process]]\nname = \"p0\"\nrole = \"prefill\"\ncommand = [\"e\"]\n[[process]]\nname = \"d0\"\nrole = "
      "\"decode\"\ncommand = [\"e\", \"{port:d0}\"]\n[[process]]\nname = \"d1\"\nrole = \"decode\"\ncommand = [\"e\"]\n"
      "[[endpoint]]\nurl = \"http://127.0.0.1:{port:d0}\"\n";
  const Deployment d =
      parsed(processes +
             "[[switch]]\nname = \"split\"\nper_role = true\nrequires = [\"graphs\"]\nsides = {off = {}, on = "
             "{args = [\"--split\"]}}\n[[switch]]\nname = \"graphs\"\nper_role = true\nsides = {off = "
             "{}, on = {env = {G = \"1\"}}}\n");
  EXPECT_EQ(names_of(d),
            (std::vector<std::string>{"split@prefill", "split@decode", "graphs@prefill", "graphs@decode"}));
  EXPECT_EQ(d.switches[1].processes, (std::vector<std::string>{"d0", "d1"}));
  EXPECT_EQ(d.switches[0].needs, std::vector<std::string>{"graphs@prefill"});
  const Variant decode_only{false, true, false, true};
  EXPECT_TRUE(check_variant(d, decode_only));
  EXPECT_EQ(plain_command(d, decode_only, d.processes[0]).argv, std::vector<std::string>{"e"});
  EXPECT_EQ(plain_command(d, decode_only, d.processes[2]).argv, (std::vector<std::string>{"e", "--split"}));
}

TEST(Switches, AnEndpointIsASideThatRequestsChoose) {
  const Deployment d = parsed(
      "[deployment]\nrestart = \"never\"\n[[endpoint]]\nname = \"old\"\nurl = "
      "\"http://10.0.0.1:80\"\n[[endpoint]]\nname "
      "= \"new\"\nurl = \"http://10.0.0.2:80\"\n[[switch]]\nname = \"build\"\napply = \"request\"\nsides = {off = "
      "{endpoint = \"old\"}, on = {endpoint = \"new\"}}");
  EXPECT_EQ(endpoint_of(d, {true}), 1u);
  EXPECT_EQ(endpoint_of(d, {false}), 0u);
}

TEST(Deployment, FactsComeFromTheModelsConfigUnlessTheyAreStated) {
  const Deployment d = parsed(minimal("", "",
                                      "[deployment]\nmodel_config = \"" PLUMB_SOURCE_DIR
                                      "/tests/golden/tiny-random-a/config.json\"\n[facts]\nwindow = 32\n"));
  EXPECT_EQ(d.facts.at("window"), 32);
  EXPECT_EQ(d.facts.at("index_topk"), 16);
}

TEST(Deployment, NotesNameEveryKeyByItsLine) {
  std::vector<FileNote> notes;
  ASSERT_TRUE(parse_deployment(minimal("ready = {http = \"/h\"}"), "d.toml", &notes));
  const auto has = [&](std::uint32_t line, const std::string& key) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const FileNote& note) { return note.line == line && note.key == key; });
  };
  EXPECT_TRUE(has(1, "[[process]]"));
  EXPECT_TRUE(has(2, "[[process]] name"));
  EXPECT_TRUE(has(4, "[[process]] ready http"));
  EXPECT_TRUE(has(6, "[[endpoint]] url"));
}

TEST(Deployment, RunningEndpointsNeedNoProcess) {
  const auto d = parse_deployment(
      "[deployment]\nrestart = \"never\"\n[[endpoint]]\nurl = \"http://10.0.0.1:80\"\n[[switch]]\nname = \"t\"\napply "
      "= "
      "\"request\"\nsides = {off = {}, on = {body = {x = 1}}}",
      "folder/remote.toml");
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(d->name, "remote");
}

TEST(Deployment, SizeAndNestingAreBounded) {
  EXPECT_NE(message_of(std::string(2u << 20, ' ')).find("longer than"), std::string::npos);
  std::string nested = "a = ", dotted = "a";
  for (int i = 0; i < 5000; ++i) nested += "[", dotted += ".a";
  EXPECT_NE(message_of(nested), "accepted");
  EXPECT_NE(message_of(dotted + " = 1").find("dots"), std::string::npos);
}

TEST(Deployment, FilesThatCannotBeReadAreNamed) {
  const auto missing = load_deployment("/no/such/file.toml");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/no/such/file.toml"), std::string::npos);
  EXPECT_FALSE(load_deployment("/tmp"));
}

TEST(Deployment, TheDocumentedExampleIsAccepted) {
  std::ifstream in(PLUMB_SOURCE_DIR "/docs/deployment.md");
  ASSERT_TRUE(in);
  std::string line, example;
  bool inside = false;
  while (std::getline(in, line)) {
    if (line == "```toml")
      inside = true;
    else if (line == "```")
      inside = false;
    else if (inside)
      example += line + "\n";
  }
  ASSERT_FALSE(example.empty());
  const std::string config = "phantom/checkpoint/config.json";  // relative to the repository's folder
  example.replace(example.find(config), config.size(), PLUMB_SOURCE_DIR "/" + config);
  const auto parsed = parse_deployment(example, "docs/deployment.md");
  EXPECT_TRUE(parsed) << parsed.error().message;
}

TEST(Glob, StarsAndQuestionMarks) {
  EXPECT_TRUE(matches_glob("decode*", "decode12"));
  EXPECT_TRUE(matches_glob("*", ""));
  EXPECT_TRUE(matches_glob("*a*b", "xaaxbb"));
  EXPECT_TRUE(matches_glob("d?", "d1"));
  EXPECT_FALSE(matches_glob("d?", "d"));
  EXPECT_FALSE(matches_glob("decode", "decode0"));
  EXPECT_FALSE(matches_glob("*a", "ab"));
}

TEST(Ports, AreFilledInWhereverTheyStand) {
  const auto port = [](const std::string& name) { return name == "a" ? "1" : "22"; };
  EXPECT_EQ(fill_ports("x{port:a}y{port:b}{port:a}", port), "x1y221");
  EXPECT_EQ(fill_ports("{port} {p}", port), "{port} {p}");
  EXPECT_EQ(port_of_url("http://[::1]:81/x").value_or(0), 81);
  EXPECT_EQ(port_of_url("http://[::1]").value_or(0), 80);
  EXPECT_FALSE(port_of_url("http://:81"));
}

}  // namespace
}  // namespace plumb::investigator

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "server/http_server.h"
#include "server/test_support.h"

namespace plumb::server {
namespace {

using namespace testing_support;
using Json = nlohmann::ordered_json;

const std::filesystem::path kSource = PLUMB_SOURCE_DIR;

std::unique_ptr<Encoding> v4_encoding() {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("plumb_v4_server_test" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(kSource / "tests/golden/tokenizer/tokenizer.json", folder / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder / "config.json") << R"({"architectures": ["DeepseekV4ForCausalLM"], "dspark_layers": 1})";
  auto encoding = load_encoding(folder);
  EXPECT_TRUE(encoding) << encoding.error().message;
  std::filesystem::remove_all(folder);
  return std::move(*encoding);
}

const char* const kTools = R"([{"type": "function", "function": {"name": "get_weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])";

const std::string kCalls =
    "<｜DSML｜tool_calls>\n"
    "<｜DSML｜invoke name=\"get_weather\">\n"
    "<｜DSML｜parameter name=\"city\" string=\"true\">Oslo \"é\"</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"get_weather\">\n"
    "<｜DSML｜parameter name=\"city\" string=\"true\">Bergen</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>";

// DeepSeek-V4's chat form end to end; the model is a script.
class V4ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    service_.limits.settings = Settings::defaults();
    auto started = HttpServer::start({}, service_, generator_, *encoding_,
                                     {.name = "v4", .max_context = 5000, .hash = "abc", .created = 7});
    ASSERT_TRUE(started) << started.error().message;
    server_ = std::move(*started);
  }

  // The model will say this, and end there unless told otherwise.
  void say(const std::string& text, bool ends = true) {
    auto ids = encoding_->encode(text);
    if (ends) ids.push_back(encoding_->eos());
    generator_.set_script([ids](const GenerateRequest&) { return ids; });
  }
  Answer post(const std::string& path, const Json& body) {
    return Client(server_->port()).request("POST", path, body.dump());
  }
  Json chat(Json body) {
    if (!body.contains("messages")) body["messages"] = {{{"role", "user"}, {"content", "x"}}};
    const Answer answer = post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body);
  }
  std::string prompt() {
    const auto seen = generator_.seen();
    std::string text;
    for (const std::int32_t id : seen.back().prompt) text += encoding_->token_bytes(id);
    return text;
  }

  const std::unique_ptr<Encoding> encoding_ = v4_encoding();
  ServiceOptions service_;
  ScriptedGenerator generator_;
  std::unique_ptr<HttpServer> server_;
};

// A streamed answer put together as a client does it. Thinking, content and calls come in this order, unless a call
// broke and became content.
Json gathered(const std::string& body, bool in_order = true) {
  Json message = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Json::array()}};
  Json finish, usage;
  int order = 0;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    if (!line.starts_with("data: {")) continue;
    const Json event = Json::parse(line.substr(6));
    if (event.contains("usage") && !event["usage"].is_null()) usage = event["usage"];
    if (event["choices"].empty()) continue;
    const Json& choice = event["choices"][0];
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    const Json& delta = choice["delta"];
    const auto stage = [&](int now) {
      EXPECT_TRUE(now >= order || !in_order) << line;
      order = now;
    };
    if (delta.contains("reasoning_content")) {
      stage(1);
      message["reasoning_content"] =
          message["reasoning_content"].get<std::string>() + delta["reasoning_content"].get<std::string>();
    }
    if (delta.contains("content") && delta["content"] != "") {
      stage(2);
      message["content"] = message["content"].get<std::string>() + delta["content"].get<std::string>();
    }
    if (!delta.contains("tool_calls")) continue;
    stage(3);
    for (const Json& call : delta["tool_calls"]) {
      const std::size_t index = call["index"];
      if (call.contains("id")) {
        EXPECT_EQ(index, message["tool_calls"].size());
        EXPECT_EQ(call["function"]["arguments"], "");
        message["tool_calls"].push_back({{"id", call["id"]}, {"type", call["type"]}, {"function", call["function"]}});
      } else {
        auto& arguments = message["tool_calls"][index]["function"]["arguments"];
        arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
      }
    }
  }
  return {{"message", message}, {"finish_reason", finish}, {"usage", usage}};
}

TEST_F(V4ServerTest, ThinkingContentAndCallsComeApart) {
  say("Two calls.</think>Checking.\n\n" + kCalls);
  const Json reply = chat({{"tools", Json::parse(kTools)}});
  const Json& choice = reply["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& message = choice["message"];
  EXPECT_EQ(message["reasoning_content"], "Two calls.");
  EXPECT_EQ(message["content"], "Checking.");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"city": "Oslo \"é\"", "days": 2})");
  EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"], R"({"city": "Bergen"})");
  const std::string id = message["tool_calls"][0]["id"];
  EXPECT_TRUE(id.starts_with("call_") && id.size() == 29) << id;
  EXPECT_NE(id, message["tool_calls"][1]["id"]);
  EXPECT_EQ(reply["plumb"]["effort"], "high");
  const Json& usage = reply["usage"];
  const auto thinking = static_cast<std::int64_t>(encoding_->encode("Two calls.</think>").size());
  EXPECT_EQ(usage["reasoning_tokens"], thinking);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], thinking);
  // The end of the block ends the answer: the end token is not waited for.
  EXPECT_EQ(usage["completion_tokens"],
            static_cast<std::int64_t>(encoding_->encode("Two calls.</think>Checking.\n\n" + kCalls).size()));
  EXPECT_TRUE(prompt().ends_with("<｜User｜>x<｜Assistant｜><think>"));
}

TEST_F(V4ServerTest, AStreamSaysWhatTheWholeReplySays) {
  const std::string answers[] = {"Two calls.</think>Checking.\n\n" + kCalls,
                                 "\n\nHm.\n</think>\n\nPlain text é😀.\n",
                                 "Hm.\n\n" + kCalls,
                                 "Hm.</think>" + kCalls.substr(0, 120),
                                 "Hm.</think>a</think>b",
                                 "no end of thinking"};
  for (const std::string& text : answers) {
    say(text);
    Json body = {{"tools", Json::parse(kTools)}};
    const Json whole = chat(body);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    body["messages"] = {{{"role", "user"}, {"content", "x"}}};
    const bool breaks = whole["choices"][0].contains("plumb") && whole["choices"][0]["finish_reason"] == "stop" &&
                        text.find("tool_calls") != text.npos;
    const Json streamed = gathered(post("/v1/chat/completions", body).body, !breaks);
    const Json& message = whole["choices"][0]["message"];
    EXPECT_EQ(streamed["message"]["content"], message["content"]) << text;
    EXPECT_EQ(streamed["message"]["reasoning_content"],
              message.value("reasoning_content", Json()).is_null() ? Json("") : message["reasoning_content"]);
    EXPECT_EQ(streamed["finish_reason"], whole["choices"][0]["finish_reason"]);
    EXPECT_EQ(streamed["usage"], whole["usage"]);
    if (whole["choices"][0]["finish_reason"] != "tool_calls") continue;
    ASSERT_EQ(streamed["message"]["tool_calls"].size(), message["tool_calls"].size());
    for (std::size_t i = 0; i < message["tool_calls"].size(); ++i)
      EXPECT_EQ(streamed["message"]["tool_calls"][i]["function"], message["tool_calls"][i]["function"]);
  }
}

TEST_F(V4ServerTest, ACutCallIsContentAndEndsByLength) {
  say("Hm.</think>" + kCalls, false);
  const auto cut = static_cast<std::int64_t>(encoding_->encode("Hm.</think>" + kCalls.substr(0, 130)).size());
  const Json choice = chat({{"tools", Json::parse(kTools)}, {"max_tokens", cut}})["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_TRUE(choice["message"]["content"].get<std::string>().starts_with("<｜DSML｜tool_calls>\n"));
  EXPECT_EQ(choice["plumb"]["warnings"], Json{"unterminated_block"});
}

TEST_F(V4ServerTest, AConversationWithToolsGoesOn) {
  say("Sum.</think>Sun.");
  const Json messages = {{{"role", "system"}, {"content", "S"}},
                         {{"role", "user"}, {"content", "Oslo?"}},
                         {{"role", "assistant"},
                          {"content", nullptr},
                          {"reasoning_content", "One call."},
                          {"tool_calls",
                           {{{"id", "c1"},
                             {"type", "function"},
                             {"function", {{"name", "get_weather"}, {"arguments", R"({"city":"Oslo"})"}}}}}}},
                         {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "sun"}}};
  const Json reply = chat({{"messages", messages}, {"tools", Json::parse(kTools)}});
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "Sun.");
  EXPECT_TRUE(prompt().ends_with(
      "<｜User｜>Oslo?<｜Assistant｜><think>One call.</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke "
      "name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n</｜DSML｜tool_calls><｜end▁of▁sentence｜><｜User｜><tool_result>sun</tool_result>"
      "<｜Assistant｜><think>"))
      << prompt();
}

TEST_F(V4ServerTest, ThinkingIsSwitchedOffInManyWays) {
  say("Sun.");
  for (const char* off : {R"({"thinking":{"type":"disabled"}})", R"({"reasoning_effort":"none"})",
                          R"({"chat_template_kwargs":{"thinking":false}})"}) {
    const Json reply = chat(Json::parse(off));
    EXPECT_EQ(reply["choices"][0]["message"]["content"], "Sun.");
    EXPECT_TRUE(reply["choices"][0]["message"]["reasoning_content"].is_null());
    EXPECT_TRUE(prompt().ends_with("<｜Assistant｜></think>"));
  }
  say("r</think>Sun.");
  chat({{"reasoning_effort", "max"}});
  EXPECT_NE(prompt().find("Beyond maximum"), std::string::npos);
  EXPECT_EQ(chat({{"include_reasoning", false}})["choices"][0]["message"]["content"], "Sun.");
  EXPECT_EQ(chat({{"separate_reasoning", false}})["choices"][0]["message"]["content"], "r</think>Sun.");
}

TEST_F(V4ServerTest, AForcedCallIsReadFromItsStart) {
  say("<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
      "</｜DSML｜tool_calls>");
  Json body = {{"tools", Json::parse(kTools)},
               {"tool_choice", {{"type", "function"}, {"function", {{"name", "get_weather"}}}}},
               {"thinking", {{"type", "disabled"}}},
               {"messages", {{{"role", "user"}, {"content", "x"}}}}};
  const Json choice = chat(body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"city": "Oslo"})");
  body["stream"] = true;
  const Json streamed = gathered(post("/v1/chat/completions", body).body);
  EXPECT_EQ(streamed["message"]["tool_calls"][0]["function"]["arguments"], R"({"city": "Oslo"})");
  body.erase("thinking");
  const Answer refused = post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(Json::parse(refused.body)["error"]["param"], "tool_choice");
}

TEST_F(V4ServerTest, OneCallIsTheMostWithoutParallelCalls) {
  say("r</think>" + kCalls);
  const Json choice = chat({{"tools", Json::parse(kTools)}, {"parallel_tool_calls", false}})["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(V4ServerTest, StopStringsAreLookedForInTheContentOnly) {
  say("STOP r</think>one STOP two");
  const Json choice = chat({{"stop", "STOP"}})["choices"][0];
  EXPECT_EQ(choice["message"]["reasoning_content"], "STOP r");
  EXPECT_EQ(choice["message"]["content"], "one ");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "STOP");
}

TEST_F(V4ServerTest, ATokenThatNoAnswerHasEndsItWithAWarning) {
  say("r</think>one<｜User｜>two");
  const Json choice = chat(Json::object())["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "one");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["plumb"]["warnings"], Json{"unexpected_special_token"});
  const std::string metrics = Client(server_->port()).request("GET", "/metrics").body;
  EXPECT_NE(metrics.find(R"(plumb_unexpected_special_token_total{token="<｜User｜>"} 1)"), std::string::npos);
  EXPECT_NE(metrics.find(R"(plumb_answer_warnings_total{kind="unexpected_special_token"} 1)"), std::string::npos);
  EXPECT_NE(metrics.find(R"(plumb_chat_effort_total{effort="high"} 1)"), std::string::npos);
}

TEST_F(V4ServerTest, RenderShowsWhatTheModelGetsAndWhatWasKept) {
  Json body = {{"messages", {{{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "a"}}}},
               {"tools", Json::parse(kTools)}};
  const auto render = [&] {
    const Answer answer = post("/plumb/render", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body);
  };
  Json shown = render();
  EXPECT_TRUE(shown["prompt"].get<std::string>().ends_with("<｜User｜>a<｜Assistant｜><think>"));
  EXPECT_EQ(shown["effort"], "high");
  ASSERT_EQ(shown["segments"].size(), 2u);
  EXPECT_EQ(shown["segments"][0]["role"], "system");
  EXPECT_EQ(shown["segments"][1]["source"], "encoded");
  EXPECT_EQ(shown["segments"][1]["end"], shown["ids"].size());
  body["messages"].push_back({{"role", "assistant"}, {"content", "b"}, {"reasoning_content", "r"}});
  body["messages"].push_back({{"role", "user"}, {"content", "c"}});
  shown = render();
  EXPECT_EQ(shown["segments"][1]["source"], "kept");
  EXPECT_EQ(shown["segments"][2]["source"], "encoded");
  const Json ids = shown["ids"];
  body["plumb"] = {{"switches", {{"chat.incremental_render", "off"}}}};
  shown = render();
  EXPECT_EQ(shown["segments"][1]["source"], "encoded");
  EXPECT_EQ(shown["ids"], ids);
  body.erase("plumb");
  EXPECT_EQ(Json::parse(post("/tokenize", body).body)["tokens"], ids);
}

TEST_F(V4ServerTest, ConversationsThatItsFormRefusesAreA400) {
  const auto code = [&](const Json& body) {
    const Answer answer = post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return Json::parse(answer.body)["error"]["code"].get<std::string>();
  };
  EXPECT_EQ(code({{"messages", {{{"role", "robot"}, {"content", "x"}}}}}), "invalid_messages");
  EXPECT_EQ(code({{"messages", {{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", "y"}}}}}),
            "invalid_messages");
  EXPECT_EQ(code({{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"reasoning_effort", "huge"}}),
            "unsupported_parameter");
  EXPECT_EQ(code({{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"task", "sing"}}), "unsupported_parameter");
}

TEST_F(V4ServerTest, CompletionsGetABeginningAndInfillItsForm) {
  say("ok");
  post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(prompt(), "<｜begin▁of▁sentence｜>x");
  post("/v1/completions", {{"prompt", "x"}, {"add_special_tokens", false}});
  EXPECT_EQ(prompt(), "x");
  post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}});
  EXPECT_EQ(prompt(), "<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>");
  post("/v1/completions", {{"prompt", "<｜begin▁of▁sentence｜>a<｜begin▁of▁sentence｜>"}});
  EXPECT_NE(Client(server_->port())
                .request("GET", "/metrics")
                .body.find(R"(plumb_encode_warnings_total{kind="double_bos"} 1)"),
            std::string::npos);
}

}  // namespace
}  // namespace plumb::server

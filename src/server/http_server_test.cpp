#include "server/http_server.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/test_support.h"

namespace plumb::server {
namespace {

using namespace testing_support;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

Ids ids_of(std::string_view text) { return ByteEncoding().encode(text); }

Ids with_eos(std::string_view text) {
  Ids ids = ids_of(text);
  ids.push_back(ByteEncoding::kEos);
  return ids;
}

// The JSON of each event of a stream; "[DONE]" and comments are left out.
std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    if (line.starts_with("data: {")) events.push_back(Json::parse(line.substr(6)));
    at = end + 2;
  }
  return events;
}

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    http_.request_timeout = milliseconds(300);
    service_.limits.settings = Settings::defaults();
    generator_.set_script([](const GenerateRequest&) { return with_eos(" hello"); });
  }
  // Starts on first use, so that a test can change the options before.
  std::uint16_t port() {
    if (server_ == nullptr) {
      auto started = HttpServer::start(http_, service_, generator_, encoding_,
                                       {.name = "tiny", .max_context = 1000, .hash = "abc", .created = 7});
      CHECK(started.has_value());
      server_ = std::move(*started);
    }
    return server_->port();
  }
  Answer post(const std::string& path, const Json& body) { return Client(port()).request("POST", path, body.dump()); }
  Answer get(const std::string& path) { return Client(port()).request("GET", path); }
  static std::string code_of(const Answer& answer) { return Json::parse(answer.body)["error"]["code"]; }
  static Json choice_of(const Answer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["choices"][0];
  }
  void script(const Ids& tokens) {
    generator_.set_script([tokens](const GenerateRequest&) { return tokens; });
  }
  static Json chat(const std::string& text) { return {{"messages", {{{"role", "user"}, {"content", text}}}}}; }

  HttpOptions http_;
  ServiceOptions service_;
  ByteEncoding encoding_;
  ScriptedGenerator generator_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, CompletionIsTheRawText) {
  generator_.set_cached_tokens(1);
  const Answer answer = post("/v1/completions", {{"prompt", "say"}, {"temperature", 0}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  const Json json = Json::parse(answer.body);
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(json["choices"][0]["text"], " hello");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 2);
  EXPECT_EQ(json["usage"]["total_tokens"], 5);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 1);

  const GenerateRequest request = generator_.seen().at(0);
  EXPECT_EQ(request.prompt, ids_of("say"));
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 0.0);
  EXPECT_EQ(request.stop_ids, Ids{ByteEncoding::kEos});
  EXPECT_EQ(request.top_logprobs, -1);
  EXPECT_EQ(request.settings, Settings::defaults());
}

TEST_F(HttpServerTest, ABatchOfPromptsTimesNHasOneIndexEach) {
  generator_.set_script([](const GenerateRequest& request) {
    Ids ids{request.prompt[0], static_cast<std::int32_t>('0' + request.sampling.seed % 10)};
    ids.push_back(ByteEncoding::kEos);
    return ids;
  });
  const Json body{{"prompt", {{65}, {66}}}, {"n", 2}, {"seed", 5}, {"return_token_ids", true}};
  const Json json = Json::parse(post("/v1/completions", body).body);
  ASSERT_EQ(json["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"].get<std::string>()[0], i < 2 ? 'A' : 'B');
    EXPECT_EQ(json["choices"][i]["prompt_token_ids"], Json{i < 2 ? 65 : 66});
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  const auto seen = generator_.seen();
  EXPECT_EQ(seen[0].sampling.seed, 5u);
  EXPECT_EQ(seen[2].sampling.seed, 5u);
  EXPECT_NE(seen[1].sampling.seed, 5u);
  EXPECT_EQ(seen[1].sampling.seed, seen[3].sampling.seed);
}

TEST_F(HttpServerTest, WithoutASeedSamplesDiffer) {
  post("/v1/completions", {{"prompt", "a"}});
  post("/v1/completions", {{"prompt", "a"}});
  EXPECT_NE(generator_.seen()[0].sampling.seed, generator_.seen()[1].sampling.seed);
}

TEST_F(HttpServerTest, ScoringEchoesThePromptWithExactValues) {
  service_.limits.max_logprobs = -1;
  const Json choice =
      choice_of(post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 262}}));
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["finish_reason"], "length");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (Json{"a", "b"}));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1].get<double>(), static_cast<double>(-0.1f * 2));
  EXPECT_EQ(logprobs["top_logprob_ids"][1].size(), 262u);
  EXPECT_EQ(logprobs["top_logprob_ids"][1][3][1].get<double>(), static_cast<double>(-0.3f - 0.7f * 3.0f));
  EXPECT_TRUE(generator_.seen()[0].prompt_logprobs);
  EXPECT_EQ(generator_.seen()[0].max_tokens, 0);
}

TEST_F(HttpServerTest, EchoAndGenerationShareOneListOfLogprobs) {
  script(with_eos("d"));
  const Json choice = choice_of(post("/v1/completions", {{"prompt",
                                                          "\xc3\xa9"
                                                          "b"},
                                                         {"echo", true},
                                                         {"logprobs", 0}}));
  EXPECT_EQ(choice["text"],
            "\xc3\xa9"
            "bd");
  EXPECT_EQ(choice["logprobs"]["text_offset"], (Json{0, 0, 1, 2, 3}));
  EXPECT_EQ(choice["logprobs"]["token_ids"], (Json{0xc3, 0xa9, 'b', 'd', ByteEncoding::kEos}));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][3], (Json{{"d", static_cast<double>(-0.1f)}}));
}

TEST_F(HttpServerTest, EchoWithoutLogprobs) {
  EXPECT_EQ(choice_of(post("/v1/completions", {{"prompt", "ab"}, {"echo", true}}))["text"], "ab hello");
}

TEST_F(HttpServerTest, ChatLeavesOutTheSpaceOfTheForm) {
  script(with_eos(" K7-42-QX"));
  const Answer answer = post("/v1/chat/completions", chat("code?"));
  const Json json = Json::parse(answer.body);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "K7-42-QX");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(generator_.seen()[0].prompt, ids_of("<bos><user> code?<assistant>"));
  // Without max_tokens the rest of the context is free.
  EXPECT_EQ(generator_.seen()[0].max_tokens, 1000 - static_cast<std::int64_t>(generator_.seen()[0].prompt.size()));

  script(with_eos("  two"));
  EXPECT_EQ(choice_of(post("/v1/chat/completions", chat("x")))["message"]["content"], " two");
}

TEST_F(HttpServerTest, ChatLogprobsCoverEveryTokenWithItsBytes) {
  script(with_eos(" K7-42-QX"));
  Json body = chat("code?");
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Json content = choice_of(post("/v1/chat/completions", body))["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["token"], " K7-42-QX");
  EXPECT_EQ(content[0]["bytes"].size(), 9u);
  EXPECT_EQ(content[0]["logprob"].get<double>(), static_cast<double>(-0.1f));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[1]["token"], "<eos>");
}

TEST_F(HttpServerTest, ChatStreamComesInOpenAisOrder) {
  script(with_eos(" hello you"));
  Json body = chat("hi");
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Answer answer = post("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(answer.headers.at("cache-control"), "no-cache");
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  const auto events = events_of(answer.body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.front()["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  std::string text;
  for (const Json& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    ASSERT_TRUE(event.contains("usage")) << event;
    EXPECT_EQ(event["usage"].is_null(), &event != &events.back()) << event;
    EXPECT_EQ(event["id"], events.front()["id"]);
    if (!event["choices"].empty()) text += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, "hello you");
  const Json& last_choice = events[events.size() - 2]["choices"][0];
  EXPECT_EQ(last_choice["delta"], Json::object());
  EXPECT_EQ(last_choice["finish_reason"], "stop");
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 6);
}

TEST_F(HttpServerTest, UsageStandsOnEveryEventOrWhereItWasAskedFor) {
  script(with_eos("ab"));
  for (const bool is_chat : {true, false}) {
    Json body = is_chat ? chat("hi") : Json{{"prompt", "hi"}};
    const std::string path = is_chat ? "/v1/chat/completions" : "/v1/completions";
    body["stream"] = true;
    for (const Json& event : events_of(post(path, body).body)) EXPECT_FALSE(event.contains("usage")) << event;
    body["stream_options"] = {{"include_usage", true}};
    auto events = events_of(post(path, body).body);
    for (const Json& event : events) EXPECT_EQ(event.at("usage").is_null(), &event != &events.back()) << event;
    body["stream_options"] = {{"continuous_usage_stats", true}};
    for (const Json& event : events_of(post(path, body).body)) EXPECT_TRUE(event.at("usage").is_object()) << event;
  }
}

// Every token's scores come once, and no event has an empty list of them.
TEST_F(HttpServerTest, ChatStreamCarriesLogprobsOfTokensOnly) {
  script(with_eos(" hello ab"));
  Json body = chat("hi");
  body["stream"] = true;
  body["logprobs"] = true;
  std::size_t scored = 0;
  const auto events = events_of(post("/v1/chat/completions", body).body);
  for (const Json& event : events) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    EXPECT_GT(logprobs["content"].size(), 0u) << event;
    scored += logprobs["content"].size();
  }
  EXPECT_EQ(scored, with_eos(" hello ab").size());
  EXPECT_FALSE(events.at(1)["choices"][0]["logprobs"].is_null());  // the first token comes behind the role
}

// A model whose form has text and nothing else.
class TextOnlyEncoding final : public ByteEncoding {
 public:
  Result<std::unique_ptr<ChatPrompt>> lay_out(Conversation conversation) const override {
    if (conversation.thinking.value_or(false) || !conversation.effort.empty())
      return error("thinking: this model does not think before it answers");
    if (!conversation.task.empty()) return error("task: this model has none");
    if (!conversation.literal_specials) return error("user_specials: control strings are always plain text");
    if (!conversation.tools.empty()) return error("tools: '{}' is unknown", conversation.tools.front().name);
    for (std::size_t i = 0; i < conversation.messages.size(); ++i)
      if (!conversation.messages[i].tools.empty()) return error("messages[{}].tools: there are none", i);
    return ByteEncoding::lay_out(std::move(conversation));
  }
};

// A field that the request does not have is not one that its sender can mend.
TEST_F(HttpServerTest, RefusalsOfTheEncodingNameTheFieldsOfTheRequest) {
  const TextOnlyEncoding encoding;
  const auto server = HttpServer::start(http_, service_, generator_, encoding,
                                        {.name = "model", .max_context = 1000, .hash = "abc", .created = 7});
  ASSERT_TRUE(server);
  const Json weather = Json::array({{{"type", "function"}, {"function", {{"name", "weather"}}}}});
  const std::pair<const char*, Json> cases[] = {
      {"reasoning_effort", {{"reasoning_effort", "high"}}},
      {"reasoning.effort", {{"reasoning", {{"effort", "low"}}}}},
      {"thinking", {{"thinking", {{"type", "enabled"}}}}},
      {"chat_template_kwargs.thinking", {{"chat_template_kwargs", {{"thinking", true}}}}},
      {"plumb.user_specials", {{"plumb", {{"user_specials", "reference"}}}}},
      {"task", {{"task", "title"}}},
      {"tools", {{"tools", weather}}},
      {"messages", {{"messages", {{{"role", "user"}, {"content", "x"}, {"tools", weather}}}}}}};
  for (const auto& [param, fields] : cases) {
    Json body = chat("hi");
    body.update(fields);
    for (const char* path : {"/v1/chat/completions", "/plumb/render", "/tokenize"}) {
      const Answer answer = Client((*server)->port()).request("POST", path, body.dump());
      ASSERT_EQ(answer.status, 400) << path << body;
      const Json error = Json::parse(answer.body)["error"];
      EXPECT_EQ(error["param"], param) << path << error;
      EXPECT_TRUE(error["message"].get<std::string>().starts_with(param)) << error;
    }
  }
}

TEST_F(HttpServerTest, CompletionStreamCarriesLogprobsAndIdsOfItsStep) {
  script(with_eos("ab"));
  const Answer answer =
      post("/v1/completions",
           {{"prompt", "x"}, {"stream", true}, {"logprobs", 1}, {"echo", true}, {"return_token_ids", true}});
  Ids tokens, scored;
  std::string text;
  for (const Json& event : events_of(answer.body)) {
    const Json& choice = event["choices"][0];
    text += choice["text"];
    if (choice.contains("token_ids"))
      for (const Json& id : choice["token_ids"]) tokens.push_back(id);
    if (!choice["logprobs"].is_null())
      for (const Json& id : choice["logprobs"]["token_ids"]) scored.push_back(id);
  }
  EXPECT_EQ(text, "xab");
  EXPECT_EQ(tokens, (Ids{'a', 'b', ByteEncoding::kEos}));
  EXPECT_EQ(scored, (Ids{'x', 'a', 'b', ByteEncoding::kEos}));
}

TEST_F(HttpServerTest, StreamsOfSeveralChoicesAreTheirWholeTexts) {
  generator_.set_script(
      [](const GenerateRequest& request) { return with_eos(std::string(3, static_cast<char>(request.prompt[0]))); });
  const Answer answer = post("/v1/completions", {{"prompt", {"a", "b", "c"}}, {"stream", true}});
  std::map<int, std::string> texts;
  int finished = 0;
  for (const Json& event : events_of(answer.body)) {
    const Json& choice = event["choices"][0];
    texts[choice["index"]] += choice["text"];
    finished += !choice["finish_reason"].is_null();
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "aaa"}, {1, "bbb"}, {2, "ccc"}}));
  EXPECT_EQ(finished, 3);
}

TEST_F(HttpServerTest, StopStringsOverTokenBordersAreNeverShown) {
  generator_.set_script([](const GenerateRequest&) { return ids_of("one ENtwo ENDtail"); });
  for (const bool stream : {false, true}) {
    const Answer answer =
        post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 500}, {"stop", {"END", "zzz"}}, {"stream", stream}});
    std::string text;
    Json last;
    if (stream) {
      for (const Json& event : events_of(answer.body)) {
        last = event["choices"][0];
        text += last["text"];
      }
    } else {
      last = choice_of(answer);
      text = last["text"];
    }
    EXPECT_EQ(text, "one ENtwo ");
    EXPECT_EQ(last["finish_reason"], "stop");
    EXPECT_EQ(last["stop_reason"], "END");
  }
  // The script never ends by itself: the server cancelled it.
  EXPECT_TRUE(generator_.wait_until_cancelled(2));
}

TEST_F(HttpServerTest, HeldTextComesOutWhenTheLengthIsReached) {
  script(ids_of("abEN"));
  const Json choice = choice_of(post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 4}, {"stop", "END"}}));
  EXPECT_EQ(choice["text"], "abEN");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(choice["stop_reason"].is_null());
}

TEST_F(HttpServerTest, StopTokensEndWithoutTheirText) {
  script(ids_of("ab;c"));
  const Json choice = choice_of(post("/v1/completions", {{"prompt", "x"}, {"stop_token_ids", {';'}}}));
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], static_cast<int>(';'));
}

TEST_F(HttpServerTest, IgnoreEosGoesOnAndLeavesItsTextOut) {
  script({'a', ByteEncoding::kEos, 'b', ByteEncoding::kUser, 'c'});
  const Json choice = choice_of(post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 5}, {"ignore_eos", true}}));
  EXPECT_EQ(choice["text"], "ab<user>c");
  EXPECT_TRUE(generator_.seen()[0].stop_ids.empty());
}

TEST_F(HttpServerTest, CharactersOverTokenBordersAreNeverSplit) {
  script(
      with_eos("\xf0\x9f\x98\x80"
               "\xc3\xa9\xff"));
  const Answer answer = post("/v1/completions", {{"prompt", "x"}, {"stream", true}});
  std::vector<std::string> texts;
  for (const Json& event : events_of(answer.body))
    if (const std::string text = event["choices"][0]["text"]; !text.empty()) texts.push_back(text);
  EXPECT_EQ(texts, (std::vector<std::string>{"\xf0\x9f\x98\x80", "\xc3\xa9", "\xef\xbf\xbd"}));
}

TEST_F(HttpServerTest, SwitchesOfARequestReachTheGenerator) {
  const Json switches{{"switches", {{"prefix_cache", "off"}, {"attention.split_k", "off@0"}}}};
  EXPECT_EQ(post("/v1/completions", {{"prompt", "x"}, {"plumb", switches}}).status, 200);
  Settings expected = Settings::defaults();
  ASSERT_TRUE(expected.set("prefix_cache", "off") && expected.set("attention.split_k", "off@0"));
  EXPECT_EQ(generator_.seen()[0].settings, expected);
  const Answer unknown = post("/v1/completions", {{"prompt", "x"}, {"plumb", {{"switches", {{"nope", "on"}}}}}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(code_of(unknown), "invalid_switch");
}

TEST_F(HttpServerTest, UnknownFieldsAreListedInAHeader) {
  const Answer answer = post("/v1/completions", {{"prompt", "x"}, {"user", "u"}, {"odd\r\nname: x", 1}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("x-plumb-ignored"), "odd??name??x, user");
}

TEST_F(HttpServerTest, ModelsAreListed) {
  const Json list = Json::parse(get("/v1/models").body);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["max_model_len"], 1000);
  EXPECT_EQ(Json::parse(get("/v1/models/tiny?x=1").body)["id"], "tiny");
  const Answer other = get("/v1/models/other");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(code_of(other), "model_not_found");
}

TEST_F(HttpServerTest, TheModelIsCheckedOnlyIfAServedNameWasGiven) {
  EXPECT_EQ(post("/v1/completions", {{"prompt", "x"}, {"model", "whatever"}}).status, 200);
  server_.reset();
  service_.served_model_name = "org/served";
  EXPECT_EQ(post("/v1/completions", {{"prompt", "x"}, {"model", "org/served"}}).status, 200);
  EXPECT_EQ(get("/v1/models/org%2Fserved").status, 200);
  const Answer answer = post("/v1/completions", {{"prompt", "x"}, {"model", "tiny"}});
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(code_of(answer), "model_not_found");
}

TEST_F(HttpServerTest, TokenizeAndDetokenize) {
  Json json = Json::parse(post("/tokenize", {{"prompt", "a hello"}}).body);
  EXPECT_EQ(json["tokens"], (Json{'a', ByteEncoding::kHello}));
  EXPECT_EQ(json["count"], 2);
  EXPECT_EQ(json["max_model_len"], 1000);
  json = Json::parse(post("/tokenize", chat("a")).body);
  EXPECT_EQ(json["tokens"], Json(ids_of("<bos><user> a<assistant>")));
  json = Json::parse(post("/detokenize", {{"tokens", json["tokens"]}}).body);
  EXPECT_EQ(json["text"], "<bos><user> a<assistant>");
  EXPECT_EQ(json["prompt"], json["text"]);
  json = Json::parse(post("/detokenize", {{"tokens", {256, 'a', 0xff}}, {"skip_special_tokens", true}}).body);
  EXPECT_EQ(json["text"], "a\xef\xbf\xbd");
}

TEST_F(HttpServerTest, HealthDoesNoWork) {
  generator_.hold(true);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_TRUE(generator_.seen().empty());
}

TEST_F(HttpServerTest, HealthGenerateNeedsAToken) {
  service_.health_timeout = milliseconds(100);
  EXPECT_EQ(get("/health_generate").status, 200);
  EXPECT_EQ(generator_.seen().at(0).max_tokens, 1);
  generator_.hold(true);
  const Answer late = get("/health_generate");
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(code_of(late), "timeout");
  EXPECT_TRUE(generator_.wait_until_cancelled(1));
  generator_.reject_with(Rejection{Rejection::Kind::overloaded, "full"});
  EXPECT_EQ(get("/health_generate").status, 503);
}

TEST_F(HttpServerTest, SwitchesTellSettingCountsAndBudgets) {
  ASSERT_TRUE(service_.limits.settings.set("prefix_cache", "off"));
  const Json json = Json::parse(get("/v1/switches").body);
  EXPECT_EQ(json["model_hash"], "abc");
  ASSERT_EQ(json["switches"].size(), kSwitchCount);
  for (std::size_t i = 0; i < kSwitchCount; ++i) {
    const Json& entry = json["switches"][i];
    EXPECT_EQ(entry["name"], kSwitches[i].name);
    EXPECT_EQ(entry["setting"], service_.limits.settings.describe(i));
    EXPECT_EQ(entry["by_default"], kSwitches[i].by_default);
    EXPECT_EQ(entry["scope"], kSwitches[i].scope == Scope::request ? "request" : "launch");
    EXPECT_EQ(entry["op_budget"]["bound"], kSwitches[i].op_budget.bound);
    EXPECT_TRUE(entry["counts"]["on"].is_number() && entry["counts"]["off"].is_number());
    EXPECT_EQ(entry["shift"], kSwitches[i].shift);
  }
}

TEST_F(HttpServerTest, MetricsCountWhatHappened) {
  post("/v1/completions", {{"prompt", "x"}});
  post("/v1/completions", {{"prompt", ""}});
  get("/nowhere");
  const Answer answer = get("/metrics");
  EXPECT_TRUE(answer.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  for (const char* line :
       {"plumb_http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"200\"} 1",
        "plumb_http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"400\"} 1",
        "plumb_http_requests_total{handler=\"other\",method=\"GET\",status=\"404\"} 1",
        "plumb_request_success_total{finished_reason=\"stop\"} 1", "plumb_time_to_first_token_seconds_count 1",
        "plumb_e2e_request_latency_seconds_count 1", "plumb_generation_tokens_total 2", "plumb_num_requests_running 0",
        "plumb_switch_info{switch=\"prefix_cache\",state=\"on\"} 1",
        "plumb_build_info{version=\"0.1.0\",model=\"tiny\",model_hash=\"abc\"} 1"})
    EXPECT_NE(answer.body.find(line), std::string::npos) << line << "\n" << answer.body;
}

TEST_F(HttpServerTest, ServerInfoShowsArgumentsAndSwitches) {
  service_.launch_args = {{"host", "127.0.0.1"}};
  for (const char* path : {"/get_server_info", "/server_info"}) {
    const Json json = Json::parse(get(path).body);
    EXPECT_EQ(json["args"]["host"], "127.0.0.1");
    EXPECT_EQ(json["switches"]["prefix_cache"], "on");
  }
}

TEST_F(HttpServerTest, EveryErrorHasOpenAisShapeAndACode) {
  const std::tuple<Answer, int, std::string> cases[] = {
      {Client(port()).request("POST", "/v1/completions", "{"), 400, "invalid_json"},
      {post("/v1/completions", Json::object()), 400, "missing_required_parameter"},
      {post("/v1/completions", {{"prompt", ""}}), 400, "invalid_value"},
      {post("/v1/chat/completions", {{"messages", {{{"role", "wizard"}, {"content", "x"}}}}}), 400, "invalid_messages"},
      {post("/v1/completions", {{"prompt", "x"}, {"best_of", 2}}), 400, "unsupported_parameter"},
      {get("/nothing"), 404, "endpoint_not_found"},
      {get("/v1/models/"), 404, "endpoint_not_found"},
      {get("/v1/completions"), 405, "method_not_allowed"},
      {post("/health", Json::object()), 405, "method_not_allowed"},
  };
  for (const auto& [answer, status, code] : cases) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const Json json = Json::parse(answer.body)["error"];
    EXPECT_EQ(json["code"], code);
    EXPECT_TRUE(json["message"].is_string() && json["type"].is_string() && json.contains("param"));
  }
  EXPECT_EQ(get("/v1/completions").headers.at("allow"), "POST");
}

TEST_F(HttpServerTest, WhatDoesNotFitTheContextIsRefusedBeforeAnyHeader) {
  const std::string long_prompt(1000, 'a');
  for (const bool stream : {false, true}) {
    const Answer too_long = post("/v1/completions", {{"prompt", long_prompt}, {"max_tokens", 1}, {"stream", stream}});
    EXPECT_EQ(too_long.status, 400);
    EXPECT_EQ(code_of(too_long), "context_length_exceeded");
    EXPECT_NE(too_long.body.find("1000 tokens"), std::string::npos);
    EXPECT_EQ(code_of(post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1000}, {"stream", stream}})),
              "context_length_exceeded");
  }
  EXPECT_EQ(code_of(post("/v1/chat/completions", chat(long_prompt))), "context_length_exceeded");
  EXPECT_TRUE(generator_.seen().empty());
  EXPECT_EQ(post("/v1/completions", {{"prompt", long_prompt}, {"max_tokens", 0}, {"echo", true}}).status, 200);
}

TEST_F(HttpServerTest, AnAnswerOfTooManyLogprobsIsRefused) {
  service_.limits.max_logprobs = -1;
  service_.max_score_entries = 1000;
  EXPECT_EQ(
      code_of(post("/v1/completions", {{"prompt", "abcd"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 262}})),
      "too_many_logprobs");
}

TEST_F(HttpServerTest, OverloadIsA503WithRetryAfter) {
  generator_.reject_with(Rejection{Rejection::Kind::overloaded, "the queue is full"});
  for (const bool stream : {false, true}) {
    const Answer answer = post("/v1/completions", {{"prompt", "x"}, {"stream", stream}});
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(code_of(answer), "overloaded");
    EXPECT_EQ(answer.headers.at("retry-after"), "1");
  }
  generator_.reject_with(Rejection{Rejection::Kind::too_long, "too long"});
  EXPECT_EQ(post("/v1/completions", {{"prompt", "x"}}).status, 400);
}

TEST_F(HttpServerTest, RequestIdIsEchoedAndConnectionsAreKept) {
  Client client(port());
  for (int i = 0; i < 3; ++i) {
    const std::string id = "id-" + std::to_string(i);
    const Answer answer =
        client.request("POST", "/v1/completions", R"({"prompt":"x"})", "X-Request-Id: " + id + "\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("x-request-id"), id);
  }
  const Answer streamed = client.request("POST", "/v1/completions", R"({"prompt":"x","stream":true})");
  EXPECT_TRUE(streamed.body.ends_with("[DONE]\n\n"));
  EXPECT_EQ(client.request("GET", "/health").status, 200);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Client client(port());
  std::string both = Client::request_text("POST", "/v1/completions", R"({"prompt":"x"})", "X-Request-Id: 1\r\n");
  both += Client::request_text("GET", "/health", "", "X-Request-Id: 2\r\n");
  client.send(both);
  EXPECT_EQ(client.receive().headers["x-request-id"], "1");
  EXPECT_EQ(client.receive().headers["x-request-id"], "2");
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Client client(port());
  const Answer answer = client.request("HEAD", "/health");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(client.request("GET", "/health").body, R"({"status":"ok"})");
}

TEST_F(HttpServerTest, Http10StreamsEndWithTheConnection) {
  Client client(port());
  const std::string body = R"({"prompt":"x","stream":true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const Answer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(HttpServerTest, ExpectContinueIsAnswered) {
  Client client(port());
  const std::string body = R"({"prompt":"x"})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.receive(true).status, 100);
  client.send(body);
  EXPECT_EQ(client.receive().status, 200);
}

TEST_F(HttpServerTest, DisconnectDuringACallCancels) {
  script(ids_of("never ends"));
  const Json body{{"prompt", "x"}, {"max_tokens", 900}};
  {
    Client client(port());
    client.send(Client::request_text("POST", "/v1/completions", body.dump()));
    ASSERT_TRUE(generator_.wait_until_submitted(1));
  }
  EXPECT_TRUE(generator_.wait_until_cancelled(1));
}

TEST_F(HttpServerTest, HalfCloseDuringACallCancels) {
  script(ids_of("never ends"));
  Client client(port());
  client.send(Client::request_text("POST", "/v1/completions", Json{{"prompt", "x"}, {"max_tokens", 900}}.dump()));
  ASSERT_TRUE(generator_.wait_until_submitted(1));
  client.half_close();
  EXPECT_TRUE(generator_.wait_until_cancelled(1));
}

TEST_F(HttpServerTest, DisconnectDuringAStreamCancelsEveryChoice) {
  script(ids_of("never ends"));
  const Json body{{"prompt", {"x", "y"}}, {"max_tokens", 900}, {"stream", true}};
  {
    Client client(port());
    client.send(Client::request_text("POST", "/v1/completions", body.dump()));
    ASSERT_TRUE(client.receive_until("data: "));
  }
  EXPECT_TRUE(generator_.wait_until_cancelled(2));
  EXPECT_NE(get("/metrics").body.find("plumb_num_aborted_requests_total 1"), std::string::npos);
}

TEST_F(HttpServerTest, KeepAliveCommentsUntilTheFirstToken) {
  service_.keep_alive = milliseconds(20);
  generator_.hold(true);
  Client client(port());
  client.send(Client::request_text("POST", "/v1/completions", R"({"prompt":"x","stream":true})"));
  ASSERT_TRUE(client.receive_until(": keep-alive\n\n"));
  generator_.hold(false);
  EXPECT_TRUE(client.receive_until("data: [DONE]\n\n"));
}

TEST_F(HttpServerTest, OversizedBodiesAndHeadersAreRefused) {
  http_.max_body_bytes = 1000;
  const Answer declared = Client(port()).request("POST", "/v1/completions", std::string(2000, 'x'));
  EXPECT_EQ(declared.status, 413);
  EXPECT_EQ(code_of(declared), "body_too_large");
  Client chunked(port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" +
               std::string(2048, 'x') + "\r\n");
  EXPECT_EQ(chunked.receive().status, 413);
  const Answer header = Client(port()).request("GET", "/health", "", "X-Long: " + std::string(20000, 'x') + "\r\n");
  EXPECT_EQ(header.status, 431);
  EXPECT_EQ(code_of(header), "header_too_large");
}

// A body in a coding that is not known must not be read as the next request.
TEST_F(HttpServerTest, ABodyOfUnknownCodingIsNotTheNextRequest) {
  const std::string hidden = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const auto& [coding, status] : {std::pair("chunked, chunked", 400),
                                       {"chunked, identity", 400},
                                       {"gzip", 400},
                                       {"identity", 400},
                                       {"xchunked", 400},
                                       {"gzip, chunked", 501}}) {
    Client client(port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + std::string(coding) + "\r\n\r\n" +
                hidden);
    const Answer answer = client.receive();
    EXPECT_EQ(answer.status, status) << coding;
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_TRUE(client.receive_end());
    EXPECT_EQ(client.buffered(), "") << coding;
  }
  EXPECT_TRUE(generator_.seen().empty());
}

TEST_F(HttpServerTest, WhatHttpForbidsIsRefusedAndWhatItAllowsIsServed) {
  const auto status_of = [this](const std::string& text) {
    Client client(port());
    client.send(text);
    const Answer answer = client.receive();
    EXPECT_TRUE(client.receive_end()) << text;
    return answer.status;
  };
  const std::string get = "GET /health HTTP/1.1\r\n";
  EXPECT_EQ(status_of(get + "\r\n"), 400);
  EXPECT_EQ(status_of(get + "Host: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of(get + "Host: a\r\nX: b\r\n c\r\n\r\n"), 400);
  EXPECT_EQ(status_of(get + "Host: a\r\nContent-Encoding: gzip\r\n\r\n"), 415);
  EXPECT_EQ(status_of(get + "Host: a\r\nExpect: tea\r\n\r\n"), 417);
  EXPECT_EQ(status_of("POST /tokenize HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 9\r\n\r\n"), 417);

  Client client(port());
  client.send("\r\n\r");
  std::this_thread::sleep_for(milliseconds(20));
  client.send("\nGET http://any:1/health?x HTTP/1.1\r\nHost: any:1\r\n\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(client.request("POST", "/v1/completions", R"({"prompt":"x"})").status, 200);
}

TEST_F(HttpServerTest, ALargeBodyWithinTheLimitArrives) {
  http_.request_timeout = milliseconds(10000);
  const Answer answer = post("/tokenize", {{"prompt", std::string(256 << 10, 'a')}});
  EXPECT_EQ(Json::parse(answer.body)["count"], 256 << 10);
}

TEST_F(HttpServerTest, SlowRequestsTimeOut) {
  Client slow_body(port());
  slow_body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  const Answer answer = slow_body.receive();
  EXPECT_EQ(answer.status, 408);
  EXPECT_EQ(code_of(answer), "request_timeout");
  Client slow_header(port());
  slow_header.send("GET /health HTT");
  EXPECT_EQ(slow_header.receive().status, 408);
  EXPECT_TRUE(slow_header.receive_end());
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  http_.idle_timeout = milliseconds(50);
  Client client(port());
  EXPECT_EQ(client.request("GET", "/health").status, 200);
  EXPECT_TRUE(client.receive_end());
}

TEST_F(HttpServerTest, GarbageIsA400) {
  Client client(port());
  client.send("\x16\x03\x01 this is no HTTP\r\n\r\n");
  const Answer answer = client.receive();
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(code_of(answer), "invalid_http");
  EXPECT_TRUE(client.receive_end());
}

TEST_F(HttpServerTest, AStreamWhoseClientDoesNotReadIsEnded) {
  http_.max_unsent_bytes = 1 << 20;
  service_.limits.max_logprobs = -1;
  service_.max_score_entries = 1 << 30;
  script(Ids(900, 'a'));
  Client client(port());
  client.send(Client::request_text(
      "POST", "/v1/completions",
      Json{{"prompt", Json::array({"x", "y", "z", "u", "v"})}, {"max_tokens", 950}, {"stream", true}, {"logprobs", 262}}
          .dump()));
  EXPECT_TRUE(generator_.wait_until_cancelled(5));
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSo) {
  http_.max_connections = 2;
  Client first(port()), second(port());
  EXPECT_EQ(first.request("GET", "/health").status, 200);
  EXPECT_EQ(second.request("GET", "/health").status, 200);
  Client third(port());
  const Answer answer = third.receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
}

TEST_F(HttpServerTest, HundredKeepAliveClientsAtOnce) {
  constexpr int kClients = 100, kRequests = 5;
  generator_.set_script([](const GenerateRequest& request) {
    Ids ids = request.prompt;
    ids.push_back(ByteEncoding::kEos);
    return ids;
  });
  port();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c)
    threads.emplace_back([this, c, &right] {
      Client client(server_->port());
      for (int r = 0; r < kRequests; ++r) {
        const std::string prompt = "c" + std::to_string(c) + "r" + std::to_string(r);
        const bool stream = (c + r) % 2 == 0;
        const Answer answer =
            client.request("POST", "/v1/completions", Json{{"prompt", prompt}, {"stream", stream}}.dump());
        std::string text;
        if (stream)
          for (const Json& event : events_of(answer.body)) text += event["choices"][0]["text"];
        else if (answer.status == 200)
          text = Json::parse(answer.body)["choices"][0]["text"];
        right += text == prompt;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kClients * kRequests);
}

TEST_F(HttpServerTest, APortInUseIsAClearError) {
  HttpOptions second = http_;
  second.port = port();
  const auto started =
      HttpServer::start(second, service_, generator_, encoding_, {.name = "tiny", .max_context = 10, .hash = ""});
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("in use"), std::string::npos);
  EXPECT_NE(started.error().message.find(std::to_string(second.port)), std::string::npos);
  HttpOptions bad = http_;
  bad.host = "not-an-address";
  EXPECT_FALSE(
      HttpServer::start(bad, service_, generator_, encoding_, {.name = "tiny", .max_context = 10, .hash = ""}));
}

TEST_F(HttpServerTest, StopLetsRunningRequestsFinishWithinTheGrace) {
  generator_.hold(true);
  Client client(port());
  client.send(Client::request_text("POST", "/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(generator_.wait_until_submitted(1));
  const std::uint16_t old_port = port();
  std::thread stopper([this] { server_->stop(milliseconds(5000)); });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(Client(old_port).connected() && Client(old_port).request("GET", "/health").status == 200);
  generator_.hold(false);
  const Answer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  stopper.join();
}

TEST_F(HttpServerTest, StopCancelsWhatOutlastsTheGraceAndTellsTheClient) {
  script(ids_of("never ends"));
  Client call(port()), stream(port());
  call.send(Client::request_text("POST", "/v1/completions", R"({"prompt":"x","max_tokens":900})"));
  stream.send(Client::request_text("POST", "/v1/completions", R"({"prompt":"x","max_tokens":900,"stream":true})"));
  ASSERT_TRUE(generator_.wait_until_submitted(2));
  ASSERT_TRUE(stream.receive_until("data: "));
  server_->stop(milliseconds(10));
  const Answer answer = call.receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(code_of(answer), "stopping");
  const auto events = events_of(stream.receive().body);
  EXPECT_EQ(events.back()["error"]["code"], "stopping");
}

// A client that leaves during the grace takes the last connection along; what the generator still says must be heard,
// or the stop would wait for it in vain.
TEST_F(HttpServerTest, AStopDoesNotWaitForClientsThatLeft) {
  generator_.hold(true);
  auto server =
      HttpServer::start(http_, service_, generator_, encoding_, {.name = "tiny", .max_context = 1000, .hash = ""});
  ASSERT_TRUE(server);
  auto client = std::make_unique<Client>((*server)->port());
  client->send(Client::request_text("POST", "/v1/completions", R"({"prompt":"x"})"));
  std::this_thread::sleep_for(milliseconds(100));
  std::thread leaver([&] {
    std::this_thread::sleep_for(milliseconds(200));
    client.reset();
    std::this_thread::sleep_for(milliseconds(100));
    generator_.hold(false);
  });
  const auto started = std::chrono::steady_clock::now();
  (*server)->stop(milliseconds(5000));
  leaver.join();
  EXPECT_LT(std::chrono::steady_clock::now() - started, milliseconds(3000));
}

TEST_F(HttpServerTest, AGeneratorThatHangsDoesNotHangTheStop) {
  generator_.hold(true);
  class Stuck final : public Generator {
   public:
    tl::expected<std::uint64_t, Rejection> submit(GenerateRequest, std::shared_ptr<TokenSink> sink) override {
      const std::lock_guard lock(mutex_);
      sinks_.push_back(std::move(sink));
      return sinks_.size();
    }
    void cancel(std::uint64_t) override {}
    GeneratorStats stats() const override { return {}; }
    std::int64_t max_context_tokens() const override { return 1000; }
    std::mutex mutex_;
    std::vector<std::shared_ptr<TokenSink>> sinks_;
  } stuck;
  auto server = HttpServer::start(http_, service_, stuck, encoding_, {.name = "tiny", .max_context = 1000, .hash = ""});
  ASSERT_TRUE(server);
  Client client((*server)->port());
  client.send(Client::request_text("POST", "/v1/completions", R"({"prompt":"x"})"));
  for (int i = 0; i < 1000; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
    const std::lock_guard lock(stuck.mutex_);
    if (!stuck.sinks_.empty()) break;
  }
  server->reset();
  // What the generator says afterwards reaches nobody, and nothing breaks.
  ASSERT_EQ(stuck.sinks_.size(), 1u);
  stuck.sinks_[0]->on_token({.id = 'a', .logprob = 0, .top = {}});
  stuck.sinks_[0]->on_finish(Finish::stop, {});
}

}  // namespace
}  // namespace plumb::server

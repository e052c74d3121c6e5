#include "server/api.h"

#include <gtest/gtest.h>

namespace plumb::server {
namespace {

ApiLimits limits() {
  ApiLimits limits;
  limits.vocab_size = 1000;
  limits.settings = Settings::defaults();
  return limits;
}

ApiError completion_error(const std::string& body, const ApiLimits& bounds = limits()) {
  const auto request = parse_completion_request(body, bounds);
  EXPECT_FALSE(request.has_value()) << body;
  return request ? ApiError{} : request.error();
}

ApiError chat_error(const std::string& fields) {
  const std::string body = R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}";
  const auto request = parse_chat_request(body, limits());
  EXPECT_FALSE(request.has_value()) << body;
  return request ? ApiError{} : request.error();
}

TEST(Api, DefaultsAreOpenAis) {
  const auto request = parse_completion_request(R"({"prompt":"a"})", limits());
  ASSERT_TRUE(request);
  EXPECT_EQ(request->options.max_tokens, 16);
  EXPECT_EQ(request->options.sampling.temperature, 1.0);
  EXPECT_EQ(request->options.sampling.top_p, 1.0);
  EXPECT_EQ(request->options.logprobs, -1);
  EXPECT_EQ(request->options.n, 1);
  EXPECT_FALSE(request->options.stream || request->echo || request->options.seed_given);
  EXPECT_EQ(request->options.settings, Settings::defaults());
  const auto chat = parse_chat_request(R"({"messages":[{"role":"user","content":"x"}]})", limits());
  ASSERT_TRUE(chat);
  EXPECT_FALSE(chat->options.max_tokens.has_value());
}

TEST(Api, PromptsComeInFourForms) {
  const auto prompts = [](const std::string& json) {
    const auto request = parse_completion_request(R"({"prompt":)" + json + "}", limits());
    EXPECT_TRUE(request.has_value()) << json;
    return request ? request->prompts : std::vector<Prompt>();
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(prompts(R"("a b")"), (std::vector<Prompt>{"a b"}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1,999]"), (std::vector<Prompt>{Ids{1, 999}}));
  EXPECT_EQ(prompts("[[1],[2,3]]"), (std::vector<Prompt>{Ids{1}, Ids{2, 3}}));
  for (const char* bad : {"[]", "3", "{}", "[1,\"a\"]", "[\"a\",1]", "[\"a\",[1]]", "[1.5]", "[-1]", "[1000]",
                          "[[1],\"a\"]", "[4294967296]", "[true]", "[[[1]]]"})
    EXPECT_EQ(completion_error(R"({"prompt":)" + std::string(bad) + "}").param, "prompt") << bad;
}

TEST(Api, EveryFieldIsRead) {
  const auto request = parse_completion_request(
      R"({"model":"m","prompt":"a","max_tokens":0,"echo":true,"temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.25,
          "seed":-1,"stop":["x","y"],"stop_token_ids":[3],"ignore_eos":true,"logprobs":20,"n":3,"stream":true,
          "stream_options":{"include_usage":true},"return_token_ids":true,"skip_special_tokens":true,
          "plumb":{"switches":{"prefix_cache":"off","attention.split_k":"off@1-2"}},"user":"u","future":[1]})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  const GenerationOptions& o = request->options;
  EXPECT_EQ(o.model, "m");
  EXPECT_EQ(o.max_tokens, 0);
  EXPECT_EQ(o.sampling.temperature, 0.0);
  EXPECT_EQ(o.sampling.top_p, 0.5);
  EXPECT_EQ(o.sampling.top_k, 0);
  EXPECT_EQ(o.sampling.min_p, 0.25);
  EXPECT_EQ(o.sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(o.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(o.stop_token_ids, std::vector<std::int32_t>{3});
  EXPECT_EQ(o.logprobs, 20);
  EXPECT_EQ(o.n, 3);
  EXPECT_TRUE(o.ignore_eos && o.stream && o.include_usage && o.return_token_ids && o.skip_special_tokens &&
              o.seed_given);
  EXPECT_EQ(o.settings.describe(switch_index("prefix_cache")), "off");
  EXPECT_EQ(o.settings.describe(switch_index("attention.split_k")), "off@1-2");
  EXPECT_EQ(o.ignored, (std::vector<std::string>{"user", "future"}));
}

TEST(Api, NullIsAbsent) {
  const auto request = parse_completion_request(
      R"({"prompt":"a","stop":null,"logprobs":null,"seed":null,"n":null,"suffix":null,"logit_bias":null,"tools":null})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->options.ignored, std::vector<std::string>{"tools"});
}

TEST(Api, MalformedJsonIsRefusedWithACode) {
  for (const char* body : {"", "{", "[]", "\"a\"", R"({"prompt":"a",})", R"({"prompt":NaN})", R"({"prompt":"a"} x)",
                           R"({"prompt":"a","temperature":Infinity})", R"({"prompt":"a","temperature":1e999})",
                           R"({"prompt":"a","prompt":"b"})", R"({"prompt":"a","plumb":{"a":1,"a":2}})",
                           "{\"prompt\":\"\xff\"}", R"({"prompt":"\ud800"})"})
    EXPECT_EQ(completion_error(body).code, "invalid_json") << body;
}

TEST(Api, NestingIsBounded) {
  const auto nested = [](int depth) {
    return R"({"prompt":"a","x":)" + std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']') + "}";
  };
  EXPECT_TRUE(parse_completion_request(nested(kMaxDepth - 1), limits()));
  EXPECT_EQ(completion_error(nested(kMaxDepth)).code, "invalid_json");
  EXPECT_EQ(completion_error(nested(1000000)).code, "invalid_json");
}

TEST(Api, WrongTypesAndRangesNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {"max_tokens", "-1"},
      {"max_tokens", "1.5"},
      {"max_tokens", "\"5\""},
      {"temperature", "-0.1"},
      {"temperature", "\"hot\""},
      {"top_p", "0"},
      {"top_p", "1.1"},
      {"min_p", "2"},
      {"top_k", "-2"},
      {"seed", "1.5"},
      {"stop", "3"},
      {"stop", "[1]"},
      {"stop", "\"\""},
      {"stop_token_ids", "[-1]"},
      {"n", "0"},
      {"n", "100000"},
      {"stream", "1"},
      {"echo", "\"yes\""},
      {"logprobs", "21"},
      {"logprobs", "-1"},
      {"logprobs", "true"},
      {"ignore_eos", "0"},
      {"model", "7"},
      {"stream_options", "{}"},
      {"plumb", "[]"},
      {"max_tokens", "99999999999999999999"},
  };
  for (const auto& [field, value] : cases) {
    const std::string body = std::string(R"({"prompt":"a",")") + field + "\":" + value + "}";
    EXPECT_EQ(completion_error(body).param, field) << body;
  }
}

TEST(Api, StopStringsAreBounded) {
  std::string many = "[\"a\"";
  for (int i = 0; i < 16; ++i) many += ",\"a\"";
  EXPECT_EQ(completion_error(R"({"prompt":"a","stop":)" + many + "]}").param, "stop");
  EXPECT_EQ(completion_error(R"({"prompt":"a","stop":")" + std::string(1025, 'x') + "\"}").param, "stop");
}

TEST(Api, LogprobsReachTheVocabularyWhenTheLaunchSaysSo) {
  ApiLimits wide = limits();
  wide.max_logprobs = -1;
  EXPECT_EQ(parse_completion_request(R"({"prompt":"a","logprobs":1000})", wide)->options.logprobs, 1000);
  EXPECT_EQ(parse_completion_request(R"({"prompt":"a","logprobs":-1})", wide)->options.logprobs, 1000);
  EXPECT_EQ(completion_error(R"({"prompt":"a","logprobs":1001})", wide).param, "logprobs");
}

TEST(Api, ScoringAloneNeedsEcho) {
  EXPECT_EQ(completion_error(R"({"prompt":"a","max_tokens":0})").param, "max_tokens");
  EXPECT_TRUE(parse_completion_request(R"({"prompt":"a","max_tokens":0,"echo":true,"logprobs":0})", limits()));
}

TEST(Api, ChoicesOfABatchAreBounded) {
  EXPECT_TRUE(parse_completion_request(R"({"prompt":["a","b"],"n":128})", limits()));
  EXPECT_EQ(completion_error(R"({"prompt":["a","b"],"n":129})").param, "n");
}

TEST(Api, WhatCannotBeHonouredIsRefusedNotIgnored) {
  for (const char* fields :
       {R"("tools":[{"type":"function"}])", R"("tool_choice":"auto")", R"("response_format":{"type":"json_object"})",
        R"("logit_bias":{"3":1})", R"("presence_penalty":0.1)", R"("frequency_penalty":-1)",
        R"("repetition_penalty":1.1)", R"("reasoning_effort":"high")", R"("thinking":{"type":"enabled"})",
        R"("min_tokens":3)", R"("continue_final_message":true)", R"("input_ids":[1])",
        R"("chat_template_kwargs":{"thinking":true})", R"("n":2,"best_of":3)"})
    EXPECT_EQ(chat_error(fields).code, "unsupported_parameter") << fields;
  EXPECT_EQ(completion_error(R"({"prompt":"a","suffix":"b"})").code, "unsupported_parameter");
}

TEST(Api, NeutralValuesOfSuchFieldsAreAccepted) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"user","content":"x"}],"tools":[],"tool_choice":"none","response_format":{"type":"text"},
          "logit_bias":{},"presence_penalty":0,"frequency_penalty":0.0,"repetition_penalty":1,"reasoning_effort":"none",
          "thinking":{"type":"disabled"},"n":2,"best_of":2})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->options.ignored.empty());
}

TEST(Api, MessagesTakeTextOrTextParts) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"system","content":"s"},
                      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
          "max_tokens":5,"max_completion_tokens":7,"logprobs":true,"top_logprobs":4})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->messages[0].role, "system");
  EXPECT_EQ(request->messages[1].content, "ab");
  EXPECT_EQ(request->options.max_tokens, 7);
  EXPECT_EQ(request->options.logprobs, 4);
  for (const char* messages :
       {"[]", "[3]", R"([{"content":"x"}])", R"([{"role":"user"}])", R"([{"role":"user","content":null}])",
        R"([{"role":"user","content":[{"type":"image_url"}]}])", R"([{"role":1,"content":"x"}])",
        R"([{"role":"assistant","content":"x","tool_calls":[{"id":"1"}]}])", "\"hi\""}) {
    const auto bad = parse_chat_request(std::string(R"({"messages":)") + messages + "}", limits());
    ASSERT_FALSE(bad) << messages;
    EXPECT_TRUE(bad.error().param.starts_with("messages")) << bad.error().param;
  }
  EXPECT_EQ(chat_error(R"("top_logprobs":3)").param, "top_logprobs");
}

TEST(Api, SwitchesOfARequestAreChecked) {
  const auto switches_error = [](const std::string& switches) {
    return completion_error(R"({"prompt":"a","plumb":{"switches":)" + switches + "}}");
  };
  EXPECT_EQ(switches_error(R"({"no.such":"on"})").code, "invalid_switch");
  EXPECT_EQ(switches_error(R"({"prefix_cache":"ON"})").code, "invalid_switch");
  EXPECT_EQ(switches_error(R"({"prefix_cache":true})").code, "invalid_type");
  EXPECT_EQ(switches_error("[]").code, "invalid_type");
  EXPECT_EQ(completion_error(R"({"prompt":"a","plumb":{"switch":{}}})").param, "plumb");
}

TEST(Api, ASwitchOfLaunchScopeIsRefusedInARequest) {
  constexpr Switch kLaunch[] = {{.name = "kv.layout",
                                 .on = "",
                                 .off = "",
                                 .by_default = true,
                                 .scope = Scope::launch,
                                 .op_budget = {Metric::exact, 0},
                                 .shift = 0,
                                 .source = ""}};
  Settings settings;
  const auto set = set_request_switch(settings, "kv.layout", "on", kLaunch);
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().status, 400);
  EXPECT_EQ(set.error().code, "launch_scope_switch");
  EXPECT_NE(set.error().message.find("--set kv.layout=on"), std::string::npos);
}

TEST(Api, TokenizeTakesExactlyOneOfPromptAndMessages) {
  EXPECT_TRUE(parse_tokenize_request(R"({"prompt":""})", limits()));
  EXPECT_TRUE(parse_tokenize_request(R"({"messages":[{"role":"user","content":"x"}]})", limits()));
  EXPECT_FALSE(parse_tokenize_request("{}", limits()));
  EXPECT_FALSE(parse_tokenize_request(R"({"prompt":"a","messages":[{"role":"user","content":"x"}]})", limits()));
  EXPECT_FALSE(parse_detokenize_request(R"({"tokens":[1000]})", limits()));
  EXPECT_FALSE(parse_detokenize_request("{}", limits()));
}

TEST(Api, ErrorsHaveOpenAisNestedShape) {
  EXPECT_EQ(error_body({.message = "no \"x\"", .param = "prompt", .code = "c"}),
            R"({"error":{"message":"no \"x\"","type":"invalid_request_error","param":"prompt","code":"c"}})");
  EXPECT_EQ(error_body({.status = 503, .type = "server_error", .message = "m", .param = "", .code = "c"}),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":"c"}})");
}

}  // namespace
}  // namespace plumb::server

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
          "stream_options":{"include_usage":true,"continuous_usage_stats":true},"return_token_ids":true,"skip_special_tokens":true,
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
  EXPECT_TRUE(o.ignore_eos && o.stream && o.include_usage && o.continuous_usage && o.return_token_ids &&
              o.skip_special_tokens && o.seed_given);
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
      {"repetition_penalty", "0"},
      {"repetition_penalty", "1e-320"},
      {"logit_bias", R"({"05":1})"},
      {"logit_bias", R"({"005":1})"},
      {"logit_bias", R"({"00":1})"},
      {"logit_bias", R"({"-0":1})"},
      {"logit_bias", R"({" 5":1})"},
      {"logit_bias", R"({"+5":1})"},
  };
  for (const auto& [field, value] : cases) {
    const std::string body = std::string(R"({"prompt":"a",")") + field + "\":" + value + "}";
    EXPECT_EQ(completion_error(body).param, field) << body;
  }
}

TEST(Api, TheFieldThatAsksForThinkingIsKnown) {
  const auto field = [](const std::string& fields) {
    const auto request = parse_chat_request(R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}", limits());
    EXPECT_TRUE(request) << fields;
    return request ? request->thinking_field : std::string();
  };
  EXPECT_EQ(field(R"("thinking":{"type":"enabled"})"), "thinking");
  EXPECT_EQ(field(R"("thinking":{"type":"disabled"})"), "");
  EXPECT_EQ(field(R"("reasoning_effort":"none")"), "");
  EXPECT_EQ(field(R"("thinking":{"type":"enabled"},"reasoning_effort":"low")"), "reasoning_effort");
  EXPECT_EQ(field(R"("reasoning":{"effort":"low"})"), "reasoning.effort");
  EXPECT_EQ(field(R"("reasoning":{"enabled":true})"), "reasoning.enabled");
  EXPECT_EQ(field(R"("chat_template_kwargs":{"thinking":true})"), "chat_template_kwargs.thinking");
  EXPECT_EQ(field(R"("chat_template_kwargs":{"enable_thinking":true})"), "chat_template_kwargs.enable_thinking");
  EXPECT_EQ(field(R"("chat_template_kwargs":{"reasoning_effort":"max"})"), "chat_template_kwargs.reasoning_effort");
}

TEST(Api, WhatAToolSaysInVainIsListed) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"system","content":"s","tools":[
             {"type":"function","function":{"name":"h","strict":true}}]},{"role":"user","content":"x"}],
          "tools":[{"type":"function","cache_control":{"type":"e"},"function":{"name":"f","strict":true}},
                   {"type":"function","cache_control":null,"function":{"name":"g","strict":false}}]})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->options.ignored, (std::vector<std::string>{"messages.tools.function.strict", "tools.cache_control",
                                                                "tools.function.strict"}));
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

TEST(Api, ASuffixNeedsATextWithoutEcho) {
  EXPECT_EQ(parse_completion_request(R"({"prompt":"a","suffix":"b"})", limits())->suffix, "b");
  EXPECT_EQ(completion_error(R"({"prompt":"a","suffix":"b","echo":true})").param, "suffix");
  EXPECT_EQ(completion_error(R"({"prompt":[1],"suffix":"b"})").param, "suffix");
  EXPECT_EQ(completion_error(R"({"suffix":"b"})").param, "prompt");
}

TEST(Api, ChoicesOfABatchAreBounded) {
  EXPECT_TRUE(parse_completion_request(R"({"prompt":["a","b"],"n":128})", limits()));
  EXPECT_EQ(completion_error(R"({"prompt":["a","b"],"n":129})").param, "n");
}

TEST(Api, WhatCannotBeHonouredIsRefusedNotIgnored) {
  for (const char* fields :
       {R"("response_format":{"type":"json_object"})", R"("min_tokens":3)", R"("input_ids":[1])", R"("functions":[{}])",
        R"("thinking":{"type":"enabled","budget_tokens":5})", R"("chat_template_kwargs":{"enable_sth":true})",
        R"("n":2,"best_of":3)", R"("add_generation_prompt":false)", R"("stream_reasoning":false)"})
    EXPECT_EQ(chat_error(fields).code, "unsupported_parameter") << fields;
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

TEST(Api, BiasAndPenaltiesAreReadWithinTheirBounds) {
  const auto request = parse_completion_request(
      R"({"prompt":"a","logit_bias":{"3":1.5,"999":-100},"presence_penalty":-2,"frequency_penalty":0.5,
          "repetition_penalty":1.25})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  const Sampling& sampling = request->options.sampling;
  EXPECT_EQ(sampling.logit_bias, (std::map<std::int32_t, float>{{3, 1.5f}, {999, -100.0f}}));
  EXPECT_EQ(sampling.presence_penalty, -2.0);
  EXPECT_EQ(sampling.frequency_penalty, 0.5);
  EXPECT_EQ(sampling.repetition_penalty, 1.25);
  const std::pair<const char*, const char*> cases[] = {
      {"logit_bias", "[]"},          {"logit_bias", R"({"x":1})"},    {"logit_bias", R"({"1000":1})"},
      {"logit_bias", R"({"-1":1})"}, {"logit_bias", R"({"1":101})"},  {"logit_bias", R"({"1":"1"})"},
      {"logit_bias", R"({"1 ":1})"}, {"presence_penalty", "2.1"},     {"frequency_penalty", "-3"},
      {"repetition_penalty", "0"},   {"repetition_penalty", "\"1\""},
  };
  for (const auto& [field, value] : cases)
    EXPECT_EQ(completion_error(std::string(R"({"prompt":"a",")") + field + "\":" + value + "}").param, field) << value;
}

TEST(Api, MessagesTakeTextOrTextParts) {
  ApiLimits bounds = limits();
  bounds.part_separator = "--";
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"system","content":"s"},
                      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                      {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"c"}],
                       "name":"x"}],
          "max_tokens":5,"max_completion_tokens":7,"logprobs":true,"top_logprobs":4})",
      bounds);
  ASSERT_TRUE(request) << request.error().message;
  const auto& messages = request->conversation.messages;
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].content, "a--b");
  EXPECT_EQ(messages[2].content, "c");
  EXPECT_EQ(messages[2].reasoning_content, "t");
  EXPECT_EQ(request->options.ignored, std::vector<std::string>{"messages.name"});
  EXPECT_EQ(request->options.max_tokens, 7);
  EXPECT_EQ(request->options.logprobs, 4);
  for (const char* bad :
       {"[]", "[3]", R"([{"content":"x"}])", R"([{"role":"user"}])", R"([{"role":"user","content":null}])",
        R"([{"role":"user","content":[{"type":"image_url"}]}])", R"([{"role":1,"content":"x"}])", "\"hi\"",
        R"([{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}])",
        R"([{"role":"user","content":"x","reasoning_content":"r"}])",
        R"([{"role":"assistant","content":"x","function_call":{"name":"f"}}])",
        R"([{"role":"assistant","content":"x","tool_calls":{}}])", R"([{"role":"assistant","tool_calls":[{}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":""}}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[1]}}]}])",
        R"([{"role":"user","content":[{"type":"thinking","thinking":"t"}]}])",
        R"([{"role":"assistant","content":"x","prefix":true},{"role":"user","content":"x"}])"}) {
    const auto refused = parse_chat_request(std::string(R"({"messages":)") + bad + "}", limits());
    ASSERT_FALSE(refused) << bad;
    EXPECT_TRUE(refused.error().param.starts_with("messages")) << refused.error().param;
  }
  EXPECT_EQ(chat_error(R"("top_logprobs":3)").param, "top_logprobs");
}

TEST(Api, ToolsAndCallsAreRead) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"user","content":"x"},
                      {"role":"assistant","content":null,"reasoning":"r","tool_calls":[
                        {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},
                        {"id":"c2","type":"function","function":{"name":"f","arguments":{"a":[1]}}},
                        {"id":"c3","type":"function","function":{"name":"f"}}]},
                      {"role":"tool","tool_call_id":"c1","content":"ok"}],
          "tools":[{"type":"function","function":{"name":"f","description":"d","parameters":
                    {"type":"object","properties":{"a":{"maximum":123456789012345678901234567890,"x":2.50}},
                     "required":["a"]},"strict":false}}],
          "tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  const Conversation& conversation = request->conversation;
  ASSERT_EQ(conversation.tools.size(), 1u);
  // Numbers keep their digits, for the model reads them.
  EXPECT_EQ(conversation.tools[0].function,
            R"({"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"maximum": )"
            R"(123456789012345678901234567890, "x": 2.5}}, "required": ["a"]}, "strict": false})");
  EXPECT_EQ(conversation.tools[0].properties, std::vector<std::string>{"a"});
  EXPECT_EQ(conversation.tools[0].required, std::vector<std::string>{"a"});
  EXPECT_EQ(conversation.tool_choice, ToolChoice::named);
  EXPECT_EQ(conversation.tool_name, "f");
  EXPECT_TRUE(request->reply.one_call);
  const auto& calls = conversation.messages[1].tool_calls;
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(calls[1].arguments, "{\"a\":[1]}");
  EXPECT_EQ(calls[2].arguments, "{}");
  EXPECT_EQ(conversation.messages[1].reasoning_content, "r");
  EXPECT_EQ(conversation.messages[2].tool_call_id, "c1");
}

TEST(Api, ToolsThatAreNoneAreRefused) {
  const std::string good = R"({"type":"function","function":{"name":"f"}})";
  for (const std::string& tools : std::vector<std::string>{
           "{}", "[1]", "[{}]", R"([{"type":"x","function":{"name":"f"}}])", R"([{"type":"function","function":{}}])",
           R"([{"type":"function","function":{"name":"a b"}}])",
           R"([{"type":"function","function":{"name":"f","parameters":[]}}])",
           R"([{"type":"function","function":{"name":"f","parameters":{"properties":[]}}}])",
           R"([{"type":"function","function":{"name":"f","parameters":{"required":[1]}}}])",
           "[" + good + "," + good + "]"})
    EXPECT_TRUE(chat_error("\"tools\":" + tools).param.starts_with("tools")) << tools;
  for (const char* choice : {R"("required")", R"("any")", "3", R"({"type":"function"})"})
    EXPECT_EQ(chat_error(std::string("\"tool_choice\":") + choice).param, "tool_choice") << choice;
  EXPECT_EQ(chat_error("\"tools\":[" + good + R"(],"tool_choice":{"type":"function","function":{"name":"g"}})").param,
            "tool_choice");
}

TEST(Api, ThinkingIsSaidInManyWaysThatMustAgree) {
  const auto conversation = [](const std::string& fields) {
    const auto request = parse_chat_request(R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}", limits());
    EXPECT_TRUE(request) << request.error().message;
    return request ? request->conversation : Conversation();
  };
  EXPECT_FALSE(conversation(R"("seed":1)").thinking.has_value());
  for (const char* off :
       {R"("thinking":{"type":"disabled"})", R"("reasoning_effort":"none")", R"("reasoning":{"enabled":false})",
        R"("chat_template_kwargs":{"thinking":false})", R"("chat_template_kwargs":{"enable_thinking":false})"})
    EXPECT_EQ(conversation(off).thinking, false) << off;
  EXPECT_EQ(conversation(R"("thinking":{"type":"enabled"})").thinking, true);
  EXPECT_EQ(conversation(R"("reasoning_effort":"max")").effort, "max");
  EXPECT_EQ(conversation(R"("reasoning":{"effort":"low"},"reasoning_effort":"low")").effort, "low");
  EXPECT_FALSE(conversation(R"("chat_template_kwargs":{"drop_thinking":false})").drop_thinking);
  EXPECT_EQ(chat_error(R"("thinking":{"type":"enabled"},"reasoning_effort":"none")").param, "reasoning_effort");
  EXPECT_EQ(chat_error(R"("thinking":{"type":"disabled"},"reasoning_effort":"max")").param, "reasoning_effort");
  EXPECT_EQ(chat_error(R"("reasoning":{"effort":"low"},"reasoning_effort":"max")").param, "reasoning.effort");
  EXPECT_EQ(chat_error(R"("thinking":{"type":"maybe"})").param, "thinking.type");
  EXPECT_EQ(chat_error(R"("thinking":true)").param, "thinking");
  EXPECT_EQ(chat_error(R"("reasoning_effort":0.5)").param, "reasoning_effort");
}

TEST(Api, ContinuationsAndRulesOfOursAreRead) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"1,","prefix":true}],
          "plumb":{"switches":{"prefix_cache":"off"},"user_specials":"reference","developer_role":"reference",
                   "missing_reasoning":"reject","dsml_in_reasoning":"text","lenient_tools":true,"keep_newlines":true},
          "include_reasoning":false,"separate_reasoning":false,"task":"title"})",
      limits());
  ASSERT_TRUE(request) << request.error().message;
  const Conversation& conversation = request->conversation;
  EXPECT_EQ(conversation.continuation, Continuation::content);
  EXPECT_FALSE(conversation.literal_specials || conversation.developer_is_system);
  EXPECT_EQ(conversation.missing_reasoning, MissingReasoning::reject);
  EXPECT_EQ(conversation.task, "title");
  EXPECT_FALSE(request->reply.calls_in_reasoning || request->reply.trim_leading_newlines ||
               request->reply.split_reasoning || request->include_reasoning);
  EXPECT_TRUE(request->reply.lenient);
  EXPECT_EQ(request->options.settings.describe(switch_index("prefix_cache")), "off");
  EXPECT_EQ(chat_error(R"("plumb":{"user_specials":"none"})").param, "plumb.user_specials");
  EXPECT_EQ(chat_error(R"("plumb":{"other":1})").param, "plumb");
  EXPECT_EQ(chat_error(R"("continue_final_message":true,"continue_thinking":true)").param, "continue_thinking");
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

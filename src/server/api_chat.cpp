#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "model/python_json.h"
#include "server/api.h"
#include "server/json_fields.h"

namespace plumb::server {
namespace {

constexpr std::size_t kMaxToolNameBytes = 128;
constexpr std::string_view kContentForms = "a string or an array of parts of type text";

constexpr Unsupported kUnsupportedInChat[] = {
    {"functions", is_blank, "use tools"},
    {"function_call", is_none, "use tool_choice"},
    {"echo", is_false, "use /v1/completions"},
    {"input_ids", never, "use /v1/completions with token ids as prompt"},
    {"stream_reasoning", is_true, "use include_reasoning"},
    {"thinking_token_budget", never, "use reasoning_effort"},
};

// --- tools ---

bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::all_of(name.begin(), name.end(), fits);
}

// The first level of a parameter schema; false when a part of it has a wrong type.
bool read_schema(const Json& function, ChatTool& tool) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null()) return true;
  if (!parameters->is_object()) return false;
  if (const auto properties = parameters->find("properties"); properties != parameters->end()) {
    if (!properties->is_object()) return false;
    for (const auto& item : properties->items()) tool.properties.push_back(item.key());
  }
  if (const auto required = parameters->find("required"); required != parameters->end()) {
    if (!required->is_array()) return false;
    for (const Json& name : *required) {
      if (!name.is_string()) return false;
      tool.required.push_back(name.get<std::string>());
    }
  }
  return true;
}

void note(std::vector<std::string>& list, std::string name) {
  if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(std::move(name));
}

// What a tool says beside the function that the model is told of, and a promise about its answers that nobody keeps.
void note_ignored(const Json& tool, const std::string& param, std::vector<std::string>& ignored) {
  for (const auto& item : tool.items())
    if (item.key() != "type" && item.key() != "function" && !item.value().is_null())
      note(ignored, param + "." + item.key());
  if (const Json& function = tool["function"]; function.contains("strict") && is_true(function["strict"]))
    note(ignored, param + ".function.strict");
}

// `raw` is the array as the client wrote it, for numbers keep their digits only there.
void read_tools(Fields& fields, const std::string& param, const Json& array, std::string_view raw,
                const ApiLimits& limits, std::vector<ChatTool>& tools, std::vector<std::string>& ignored) {
  if (!array.is_array()) return fields.wrong_type(param, "an array of functions");
  if (array.size() > limits.max_tools)
    return fields.fail(param,
                       fmt::format("{} has {} entries; at most {} are allowed", param, array.size(), limits.max_tools));
  const std::vector<std::string_view> raw_tools = raw_items(raw);
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", param, i);
    const Json& tool = array[i];
    if (!tool.is_object() || tool.value("type", Json()) != "function" || !tool.contains("function") ||
        !tool["function"].is_object())
      return fields.wrong_type(at, "an object with type \"function\" and an object function");
    const Json& function = tool["function"];
    ChatTool& parsed = tools.emplace_back();
    if (const auto name = function.find("name"); name != function.end() && name->is_string())
      parsed.name = name->get<std::string>();
    if (!is_name(parsed.name))
      return fields.fail(at + ".function.name", fmt::format("{}.function.name must be 1 to {} letters, digits or _-.:/",
                                                            at, kMaxToolNameBytes));
    if (!names.insert(parsed.name).second)
      return fields.fail(at, fmt::format("{}: function '{}' is declared twice", at, parsed.name));
    if (!read_schema(function, parsed))
      return fields.fail(at + ".function.parameters",
                         fmt::format("{}.function.parameters must be a JSON schema of an object", at));
    const std::string_view written = i < raw_tools.size() ? raw_member(raw_tools[i], "function") : std::string_view();
    const auto printed = python_json(written.empty() ? function.dump() : std::string(written));
    if (!printed) return fields.fail(at, fmt::format("{}: {}", at, printed.error().message));
    parsed.function = *printed;
    note_ignored(tool, param, ignored);
  }
}

void read_tool_choice(Fields& fields, Conversation& conversation) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  constexpr std::string_view kForms =
      "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}";
  if (choice->is_string()) {
    if (*choice == "auto") return;
    if (*choice == "none") {
      conversation.tool_choice = ToolChoice::none;
      return;
    }
    if (*choice != "required") return fields.wrong_type("tool_choice", kForms);
    if (conversation.tools.empty()) return fields.fail("tool_choice", "tool_choice \"required\" needs tools");
    conversation.tool_choice = ToolChoice::required;
    return;
  }
  const bool named = choice->is_object() && choice->value("type", Json()) == "function" &&
                     choice->contains("function") && (*choice)["function"].is_object() &&
                     (*choice)["function"].value("name", Json()).is_string();
  if (!named) return fields.wrong_type("tool_choice", kForms);
  conversation.tool_choice = ToolChoice::named;
  conversation.tool_name = (*choice)["function"]["name"].get<std::string>();
  const auto& tools = conversation.tools;
  if (std::none_of(tools.begin(), tools.end(), [&](const ChatTool& t) { return t.name == conversation.tool_name; }))
    fields.fail("tool_choice",
                fmt::format("tool_choice names '{}', which is not among the tools", shorten(conversation.tool_name)));
}

// --- messages ---

// A string, or parts: texts are joined, thinking goes where it belongs.
void read_content(Fields& fields, const ApiLimits& limits, ChatMessage& message) {
  const Json* content = fields.find("content");
  if (content != nullptr && content->is_string()) {
    message.content = content->get<std::string>();
    return;
  }
  if (content == nullptr) {
    // What an assistant says beside calls or thinking may be nothing.
    if (message.tool_calls.empty() && !message.reasoning_content) fields.wrong_type("content", kContentForms);
    return;
  }
  if (!content->is_array()) return fields.wrong_type("content", kContentForms);
  bool first = true;
  for (const Json& part : *content) {
    const auto text_of = [&](const char* type) -> const std::string* {
      const bool fits =
          part.is_object() && part.value("type", Json()) == type && part.contains(type) && part[type].is_string();
      return fits ? &part[type].get_ref<const std::string&>() : nullptr;
    };
    if (const std::string* thinking = text_of("thinking"); thinking != nullptr && message.role == "assistant") {
      message.reasoning_content = message.reasoning_content.value_or("") + *thinking;
      continue;
    }
    const std::string* text = text_of("text");
    if (text == nullptr) return fields.wrong_type("content", kContentForms);
    if (!std::exchange(first, false)) message.content += limits.part_separator;
    message.content += *text;
  }
}

// Arguments are JSON text; some clients send the object itself.
void read_calls(Fields& fields, std::vector<ToolCall>& calls) {
  const Json* array = fields.find("tool_calls");
  if (array == nullptr) return;
  if (!array->is_array()) return fields.wrong_type("tool_calls", "an array of calls");
  for (const Json& call : *array) {
    const std::string at = fmt::format("tool_calls[{}]", calls.size());
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      return fields.wrong_type(at, "an object with an object function");
    const Json& function = call["function"];
    ToolCall& parsed = calls.emplace_back();
    if (const Json id = call.value("id", Json()); id.is_string()) parsed.id = id.get<std::string>();
    const Json name = function.value("name", Json());
    if (!name.is_string() || name == "") return fields.wrong_type(at + ".function.name", "a string with a name");
    parsed.name = name.get<std::string>();
    const Json arguments = function.value("arguments", Json());
    if (arguments.is_string())
      parsed.arguments = arguments.get<std::string>();
    else if (arguments.is_object())
      parsed.arguments = arguments.dump();
    else if (arguments.is_null())
      parsed.arguments = "{}";
    else
      return fields.wrong_type(at + ".function.arguments", "a string of JSON");
  }
}

// Returns whether the message says that it is the start of the answer.
bool read_message(Fields& fields, const ApiLimits& limits, ChatMessage& message, std::vector<std::string>& ignored) {
  message.role = fields.string("role").value_or("");
  if (message.role.empty() && !fields.failed()) fields.wrong_type("role", "a string");
  message.reasoning_content = fields.string("reasoning_content");
  const auto reasoning = fields.string("reasoning");
  if (!message.reasoning_content) message.reasoning_content = reasoning;
  read_calls(fields, message.tool_calls);
  read_content(fields, limits, message);
  message.tool_call_id = fields.string("tool_call_id").value_or("");
  message.task = fields.string("task").value_or("");
  if (const Json* tools = fields.find("tools")) read_tools(fields, "tools", *tools, {}, limits, message.tools, ignored);
  if (const Json* format = fields.find("response_format")) {
    const auto printed = python_json(format->dump());
    if (!format->is_object() || !printed) {
      fields.wrong_type("response_format", "a JSON schema");
    } else {
      message.response_format = *printed;
    }
  }
  constexpr Unsupported kUnsupported[] = {{"function_call", is_blank, "use tool_calls"},
                                          {"audio", is_blank, ""},
                                          {"refusal", is_blank, "write it into content"}};
  refuse_unsupported(fields, kUnsupported);
  const bool assistant = message.role == "assistant";
  if (!assistant && (!message.tool_calls.empty() || message.reasoning_content.value_or("") != ""))
    fields.fail("role",
                fmt::format("a message of role {} has neither tool_calls nor reasoning", shorten(message.role)));
  return fields.boolean("prefix").value_or(false);
}

void read_messages(Fields& fields, const ApiLimits& limits, Conversation& conversation,
                   std::vector<std::string>& ignored) {
  const Json* array = fields.find("messages");
  if (array == nullptr) return fields.fail("messages", "messages is missing", "missing_required_parameter");
  if (!array->is_array()) return fields.wrong_type("messages", "an array");
  if (array->empty()) return fields.fail("messages", "messages is empty");
  if (array->size() > limits.max_messages)
    return fields.fail(
        "messages", fmt::format("messages has {} entries; at most {} are allowed", array->size(), limits.max_messages));
  for (std::size_t i = 0; i < array->size(); ++i) {
    const Json& json = (*array)[i];
    const std::string param = fmt::format("messages[{}]", i);
    if (!json.is_object()) return fields.wrong_type(param, "an object");
    Fields message(&json, param + ".");
    std::vector<std::string> in_message;
    const bool prefix = read_message(message, limits, conversation.messages.emplace_back(), in_message);
    if (prefix && i + 1 < array->size()) message.fail("prefix", "prefix belongs to the last message");
    if (prefix) conversation.continuation = Continuation::content;
    if (message.failed()) return fields.fail_with(message.error().value());
    for (const std::string& name : message.unknown()) in_message.push_back(name);
    for (const std::string& name : in_message) note(ignored, "messages." + name);
  }
}

// --- thinking ---

// Several fields may say it, in the words of several APIs; they must not contradict each other.
class ThinkingWish {
 public:
  ThinkingWish(Fields& fields, Conversation& conversation) : fields_(fields), conversation_(conversation) {}

  void think(std::string_view param, std::optional<bool> on) {
    if (on && thinking_ && *on != *thinking_) return contradiction(param);
    if (on) thinking_ = on;
    if (on == true) thinking_param_ = param;
  }
  void effort(std::string_view param, const std::optional<std::string>& word) {
    if (!word || word->empty()) return;
    if (*word == "none") return think(param, false);
    if (!conversation_.effort.empty() && conversation_.effort != *word) return contradiction(param);
    conversation_.effort = *word;
    effort_param_ = param;
  }
  /// Returns the field that asks for thinking, best the one with the effort.
  std::string settle() {
    if (thinking_ == false && !conversation_.effort.empty()) contradiction(effort_param_);
    conversation_.thinking = thinking_;
    return effort_param_.empty() ? thinking_param_ : effort_param_;
  }

 private:
  void contradiction(std::string_view param) {
    fields_.fail(param, fmt::format("{} contradicts what another field says about thinking", param));
  }

  Fields& fields_;
  Conversation& conversation_;
  std::optional<bool> thinking_;
  std::string thinking_param_, effort_param_;
};

// An object of the request whose unknown members are refused.
template <class Read>
void read_object(Fields& fields, const std::string& name, Read read) {
  const Json* value = fields.find(name);
  if (value == nullptr) return;
  if (!value->is_object()) return fields.wrong_type(name, "an object");
  Fields members(value, name + ".");
  read(members);
  if (members.failed()) return fields.fail_with(members.error().value());
  for (const std::string& unknown : members.unknown())
    fields.fail(name, fmt::format("{}.{} is not supported by this version", name, shorten(unknown)),
                "unsupported_parameter");
}

std::string read_thinking(Fields& fields, Conversation& conversation) {
  ThinkingWish wish(fields, conversation);
  read_object(fields, "thinking", [&](Fields& thinking) {
    constexpr std::string_view kTypes[] = {"disabled", "enabled"};
    const auto type = thinking.word("type", kTypes);
    if (!type && !thinking.failed()) thinking.wrong_type("type", "enabled or disabled");
    if (type) wish.think("thinking", *type == 1);
  });
  wish.effort("reasoning_effort", fields.string("reasoning_effort"));
  read_object(fields, "reasoning", [&](Fields& reasoning) {
    wish.think("reasoning.enabled", reasoning.boolean("enabled"));
    wish.effort("reasoning.effort", reasoning.string("effort"));
  });
  read_object(fields, "chat_template_kwargs", [&](Fields& kwargs) {
    wish.think("chat_template_kwargs.thinking", kwargs.boolean("thinking"));
    wish.think("chat_template_kwargs.enable_thinking", kwargs.boolean("enable_thinking"));
    wish.effort("chat_template_kwargs.reasoning_effort", kwargs.string("reasoning_effort"));
    conversation.drop_thinking = kwargs.boolean("drop_thinking").value_or(true);
  });
  return wish.settle();
}

void read_continuation(Fields& fields, Conversation& conversation) {
  const bool content = fields.boolean("continue_final_message").value_or(false);
  const bool reasoning = fields.boolean("continue_thinking").value_or(false);
  if (content && reasoning)
    fields.fail("continue_thinking", "continue_thinking and continue_final_message exclude each other");
  if (content) conversation.continuation = Continuation::content;
  if (reasoning) conversation.continuation = Continuation::reasoning;
  if (!fields.boolean("add_generation_prompt").value_or(true) && conversation.continuation == Continuation::none)
    fields.fail("add_generation_prompt",
                "add_generation_prompt false needs a message to continue; for prompts of "
                "another form use /v1/completions",
                "unsupported_parameter");
}

// Choices of ours, beside the switches.
void read_rules(Fields& plumb, Conversation& conversation, ReplyOptions& reply) {
  constexpr std::string_view kSpecials[] = {"literal", "reference"}, kDeveloper[] = {"system", "reference"};
  constexpr std::string_view kMissing[] = {"warn", "reject", "allow"}, kDsml[] = {"call", "text"};
  if (const auto word = plumb.word("user_specials", kSpecials)) conversation.literal_specials = *word == 0;
  if (const auto word = plumb.word("developer_role", kDeveloper)) conversation.developer_is_system = *word == 0;
  if (const auto word = plumb.word("missing_reasoning", kMissing))
    conversation.missing_reasoning = static_cast<MissingReasoning>(*word);
  if (const auto word = plumb.word("dsml_in_reasoning", kDsml)) reply.calls_in_reasoning = *word == 0;
  reply.lenient = plumb.boolean("lenient_tools").value_or(false);
  reply.trim_leading_newlines = !plumb.boolean("keep_newlines").value_or(false);
}

void read_conversation(Fields& fields, std::string_view body, const ApiLimits& limits, ChatRequest& request) {
  Conversation& conversation = request.conversation;
  read_messages(fields, limits, conversation, request.options.ignored);
  if (const Json* tools = fields.find("tools"))
    read_tools(fields, "tools", *tools, raw_member(body, "tools"), limits, conversation.tools, request.options.ignored);
  read_tool_choice(fields, conversation);
  request.thinking_field = read_thinking(fields, conversation);
  read_continuation(fields, conversation);
  conversation.task = fields.string("task").value_or("");
  if (auto plumb = plumb_member(fields)) {
    read_switches(fields, *plumb, limits, request.options);
    read_rules(*plumb, conversation, request.reply);
    refuse_unknown(fields, *plumb,
                   "switches, user_specials, developer_role, missing_reasoning, dsml_in_reasoning, "
                   "lenient_tools, keep_newlines");
  }
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const ApiLimits& limits) {
  auto json = parse_object(body);
  if (!json) return tl::unexpected(json.error());
  Fields fields(std::move(*json));
  ChatRequest request;
  GenerationOptions& options = request.options;
  read_common(fields, limits, options);
  refuse_unsupported(fields, kUnsupportedInChat);
  read_conversation(fields, body, limits, request);
  request.reply.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
  request.reply.split_reasoning = fields.boolean("separate_reasoning").value_or(true);
  request.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  const auto completion_tokens = fields.integer("max_completion_tokens", 1, kLargestMaxTokens);
  if (completion_tokens) options.max_tokens = completion_tokens;
  if (options.max_tokens == 0) fields.fail("max_tokens", "max_tokens must be at least 1");
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, largest_k(limits));
  if (top && !logprobs) fields.fail("top_logprobs", "top_logprobs needs logprobs to be true");
  if (logprobs) options.logprobs = static_cast<int>(top.value_or(0));
  if (fields.failed()) return fields.error();
  finish_common(fields, options);
  return request;
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ApiLimits& limits) {
  auto json = parse_object(body);
  if (!json) return tl::unexpected(json.error());
  Fields fields(std::move(*json));
  TokenizeRequest request;
  request.settings = limits.settings;
  request.prompt = fields.string("prompt");
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  const bool has_messages = fields.find("messages") != nullptr;
  if (request.prompt.has_value() == has_messages)
    fields.fail("prompt", "give exactly one of prompt and messages", "missing_required_parameter");
  if (has_messages) {
    ChatRequest chat;
    chat.options.settings = limits.settings;
    read_conversation(fields, body, limits, chat);
    request.settings = chat.options.settings;
    request.conversation = std::move(chat.conversation);
    request.thinking_field = std::move(chat.thinking_field);
  }
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace plumb::server

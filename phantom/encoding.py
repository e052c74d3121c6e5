"""DeepSeek-V4's chat encoding as the phantom needs it: messages of the chat API to the pieces and ids of a prompt.

Same text as the server's encoder for system, user, assistant and tool messages, tools, thinking kept with tools and dropped
without. Left out, since the phantom never meets them: developer and latest_reminder messages, quick tasks, response formats, and
the effort texts (with thinking, ask with reasoning_effort "low", which writes none in either profile).
"""

import json

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
USER, ASSISTANT, THINK, END_THINK, DSML = "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜"

TOOLS_HEAD = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""
TOOLS_FOOT = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"


def to_json(value):
    return json.dumps(value, ensure_ascii=False)


def marked(text):
    """Pieces of text in which <think>, </think> and ｜DSML｜ are control tokens."""
    pieces = [(text, False)]
    for token in (THINK, END_THINK, DSML):
        split = []
        for piece, control in pieces:
            if control:
                split.append((piece, True))
                continue
            first, *rest = piece.split(token)
            split.append((first, False))
            for part in rest:
                split += [(token, True), (part, False)]
        pieces = split
    return [piece for piece in pieces if piece[0]]


def tools_block(tools):
    """Pieces of the tools block for entries of the API's form {"type": "function", "function": {…}}."""
    lines = "\n".join(to_json(tool["function"]) for tool in tools)
    return [("\n\n", False)] + marked(TOOLS_HEAD) + [(lines + TOOLS_FOOT, False)]


def calls_block(calls):
    """Pieces of the DSML block of tool calls, with the separator before it."""
    out = ["\n\n<", DSML, "tool_calls>\n"]
    for call in calls:
        out += ["<", DSML, f'invoke name="{call["function"]["name"]}">\n']
        arguments = json.loads(call["function"]["arguments"])
        for key, value in arguments.items():
            text = value if isinstance(value, str) else to_json(value)
            out += [
                "<",
                DSML,
                f'parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">{text}</',
                DSML,
                "parameter>\n",
            ]
        out += (["\n</"] if not arguments else ["</"]) + [DSML, "invoke>\n"]
    out += ["</", DSML, "tool_calls>"]
    return [(text, text is DSML) for text in out]


def user_turn(messages):
    """Pieces of adjacent user and tool messages: one turn."""
    blocks = [f"<tool_result>{m['content']}</tool_result>" if m["role"] == "tool" else m["content"] for m in messages]
    return [(USER, True), ("\n\n".join(blocks), False)]


def opening(thinks):
    return [(ASSISTANT, True), (THINK if thinks else END_THINK, True)]


def assistant_turn(message, thinks):
    """Pieces of an assistant message behind its opening."""
    pieces = [(message.get("reasoning_content") or "", False), (END_THINK, True)] if thinks else []
    pieces.append((message.get("content") or "", False))
    if message.get("tool_calls"):
        pieces += calls_block(message["tool_calls"])
    return pieces + [(EOS, True)]


def turns_of(messages):
    """Groups of messages that make one turn each: adjacent user and tool messages belong together."""
    groups = []
    for message in messages:
        asks = message["role"] in ("user", "tool")
        if asks and groups and groups[-1][-1]["role"] in ("user", "tool"):
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def render(messages, tools=None, thinking=False):
    """Pieces (text, is a control token) of a prompt. messages: system?, then user, assistant and tool; one assistant message a
    turn, tool results in the order of their calls. With a question at the end the assistant's turn is opened."""
    groups = turns_of(messages)
    if tools and groups[0][0]["role"] != "system":
        groups.insert(0, [{"role": "system", "content": ""}])
    last = max((i for i, group in enumerate(groups) if group[0]["role"] in ("user", "tool")), default=-1)
    pieces = [(BOS, True)]
    for i, group in enumerate(groups):
        role = group[0]["role"]
        if role == "system":
            pieces.append((group[0]["content"], False))
            if tools:
                pieces += tools_block(tools)
        elif role in ("user", "tool"):
            pieces += user_turn(group)
            if i + 1 == len(groups) or groups[i + 1][0]["role"] == "assistant":
                pieces += opening(thinking and (bool(tools) or i >= last))
        elif role == "assistant":
            pieces += assistant_turn(group[0], thinking and (bool(tools) or i > last))
        else:
            raise ValueError(f"role {role} is not rendered here")
    return [piece for piece in pieces if piece[0]]


def to_ids(tokenizer, pieces):
    """Ids of pieces. Adjacent plain pieces are one text, as the server joins them: tokens may span their border."""
    ids, text = [], ""
    for piece, control in pieces:
        if not control:
            text += piece
            continue
        if text:
            ids += tokenizer.encode(text)
            text = ""
        ids.append(tokenizer.special[piece])
    return ids + (tokenizer.encode(text) if text else [])

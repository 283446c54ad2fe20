"""Records what a real server sends, byte by byte, as fixtures: `tests/fixtures/wires/<server>-<wire>-<case>.txt`.

    python tests/real/serve.py -- python tests/real/record.py llamacpp
    python tests/real/litellm_proxy.py -- python tests/real/record.py litellm

A fixture is the answer's status, the content type and the body as it came; `core/tests/recorded.rs` replays each at
every cut.
"""

import http.client
import json
import os
import pathlib
import re
import sys
import urllib.parse

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "wires"

HI = [{"role": "user", "content": "Say hello in one short sentence."}]
LONG = [{"role": "user", "content": "word " * 6000}]
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def chat(model: str, **more: object) -> "tuple[str, dict[str, object]]":
    options = {"include_usage": True}
    return "/chat/completions", {"model": model, "messages": HI, "stream": True, "stream_options": options, **more}


def messages(model: str, **more: object) -> "tuple[str, dict[str, object]]":
    return "/messages", {"model": model, "messages": HI, "stream": True, "max_tokens": 24, **more}


def responses(model: str, **more: object) -> "tuple[str, dict[str, object]]":
    return "/responses", {"model": model, "input": HI, "stream": True, "store": False, **more}


def llamacpp(model: str) -> "dict[str, tuple[str, dict[str, object]]]":
    return {
        "chat-text": chat(model, max_tokens=24),
        "chat-ceiling": chat(model, max_tokens=4),
        "chat-overflow": chat(model, messages=LONG),
        "chat-bad": chat(model, messages="none"),
        "messages-text": messages(model),
        "messages-ceiling": messages(model, max_tokens=4),
        "messages-overflow": messages(model, messages=LONG),
        "messages-bad": messages(model, messages="none"),
        "responses-text": responses(model, max_output_tokens=24),
        "responses-ceiling": responses(model, max_output_tokens=4),
        "responses-overflow": responses(model, input=LONG),
        "responses-bad": responses(model, input=7),
    }


def litellm(_: str) -> "dict[str, tuple[str, dict[str, object]]]":
    tools = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": TOOL}}]
    flat = [{"type": "function", "name": "weather", "description": "d", "parameters": TOOL}]
    schema = [{"name": "weather", "description": "d", "input_schema": TOOL}]
    return {
        "chat-mock-text": chat("mock-text"),
        "chat-mock-tool": chat("mock-tool", tools=tools, stream=False),
        "chat-mock-limited": chat("mock-limited"),
        "chat-mock-broken": chat("mock-broken"),
        "chat-unknown": chat("no-such-model"),
        "chat-text": chat("up-text"),
        "chat-tool": chat("up-tool", tools=tools),
        "chat-limited": chat("up-limited"),
        "messages-text": messages("up-text"),
        "messages-tool": messages("up-tool", tools=schema),
        "messages-limited": messages("up-limited"),
        "responses-text": responses("flat-text"),
        "responses-tool": responses("flat-tool", tools=flat),
        "responses-limited": responses("flat-limited"),
    }


def main() -> int:
    server = sys.argv[1]
    base = urllib.parse.urlsplit(os.environ["TURNWHEEL_BASE_URL"])
    cases = {"llamacpp": llamacpp, "litellm": litellm}[server](os.environ["TURNWHEEL_MODEL"])
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, (path, body) in cases.items():
        connection = http.client.HTTPConnection(base.hostname or "", base.port, timeout=120)
        headers = {"content-type": "application/json", "authorization": "Bearer sk-test"}
        connection.request("POST", f"{base.path}{path}", json.dumps(body), headers)
        answer = connection.getresponse()
        # A path of this machine, which llama.cpp gives as the model's name, is no part of a fixture.
        content = re.sub(rb'"model":"[^"]*\.gguf"', b'"model":"smollm2"', answer.read())
        head = f"{answer.status} {answer.headers.get('content-type')} retry-after={answer.headers.get('retry-after')}\n"
        (FIXTURES / f"{server}-{name}.txt").write_bytes(head.encode() + content)
        print(f"{server}-{name}: {answer.status}, {len(content)} bytes", flush=True)
        connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a command beside LiteLLM's proxy with mock models, on a free loopback port.

    python tests/real/litellm_proxy.py -- COMMAND [ARGUMENT ...]

The proxy runs in the virtual environment whose Python is in TURNWHEEL_LITELLM_PYTHON, because its requirements are its
own; the command finds it in TURNWHEEL_BASE_URL, with the key in TURNWHEEL_KEY. `mock-text`, `mock-tool`, `mock-limited`
(429) and `mock-broken` (500) are LiteLLM's own mocks; `own-limit` takes one request a minute and `own-rest` rests
behind two failures, both by rules of the proxy; `up-text`, `up-tool`, `up-limited` (429 with Retry-After) and
`flat-...` are served by a chat-completions server in this process; the proxy translates `up-...` into the messages wire
and `flat-...` into the responses wire.
"""

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

KEY = "sk-test"
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Zürich"}'}}


def model(name: str, provider: str = "openai", **more: object) -> "dict[str, object]":
    return {"model_name": name, "litellm_params": {"model": f"{provider}/{name}", "api_key": "sk-none", **more}}


def config(upstream: str) -> "dict[str, object]":
    ours = {"api_base": f"{upstream}/v1", "max_retries": 0}
    return {
        "model_list": [
            model("mock-text", mock_response="Grüezi from the proxy."),
            model("mock-tool", mock_tool_calls=[CALL]),
            model("mock-limited", mock_response="litellm.RateLimitError"),
            model("mock-broken", mock_response="litellm.InternalServerError"),
            *[model(f"up-{kind}", "hosted_vllm", **ours) for kind in ("text", "tool", "limited")],
            # A provider for which the proxy has no responses wire, so that it translates.
            *[model(f"flat-{kind}", "deepseek", **ours) for kind in ("text", "tool", "limited")],
            # The proxy's own limits. A model that failed rests, if it has a second deployment.
            model("own-limit", mock_response="Grüezi from the proxy.", rpm=1),
            *[{**model("down", "hosted_vllm", **ours), "model_name": "own-rest"} for _ in range(2)],
        ],
        "router_settings": {
            "num_retries": 0,
            "allowed_fails": 0,
            "cooldown_time": 30,
            "optional_pre_call_checks": ["enforce_model_rate_limits"],
        },
        "general_settings": {"master_key": KEY},
        "litellm_settings": {
            "num_retries": 0,
            "telemetry": False,
            "use_chat_completions_url_for_anthropic_messages": True,
        },
    }


class Upstream(http.server.BaseHTTPRequestHandler):
    """A chat-completions server with an answer for each model."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "limited" in asked["model"]:
            body = b'{"error":{"message":"slow down","type":"rate_limit_error","code":"429"}}'
            return self.answer(429, "application/json", body, ("retry-after", "1"))
        if "down" in asked["model"]:
            return self.answer(500, "application/json", b'{"error":{"message":"out of order"}}')
        parts: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
        reason = "stop"
        if "tool" in asked["model"] and asked["messages"][-1]["role"] != "tool":
            reason = "tool_calls"
            start = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
            parts.append({"tool_calls": [start]})
            for piece in ['{"city"', ': "Zü', 'rich"}']:
                parts.append({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        else:
            parts += [{"content": piece} for piece in ["Grüezi ", "from ", "upstream."]]
        frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
        chunks = [{**frame, "choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
        chunks.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        usage = {
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 12},
        }
        chunks.append({**frame, "choices": [], "usage": usage})
        if not asked.get("stream"):
            message: dict[str, object] = {"role": "assistant", "content": "Grüezi from upstream."}
            if reason == "tool_calls":
                message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
            whole = {**frame, "object": "chat.completion", "usage": usage}
            whole["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
            return self.answer(200, "application/json", json.dumps(whole).encode())
        events = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
        return self.answer(200, "text/event-stream", "".join([*events, "data: [DONE]\n\n"]).encode())

    def answer(self, status: int, kind: str, body: bytes, *headers: "tuple[str, str]") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(base: str, proxy: "subprocess.Popen[bytes]", log: pathlib.Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if proxy.poll() is not None:
            sys.exit(f"the proxy ended with {proxy.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"{base}/health/liveliness", timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    sys.exit(f"the proxy was not ready after 240 s; its output is in {log}")


def main() -> int:
    if sys.argv[1:2] != ["--"] or len(sys.argv) < 3:
        sys.exit(__doc__)
    python = pathlib.Path(os.environ.get("TURNWHEEL_LITELLM_PYTHON", ".venv-litellm/bin/python"))
    base = f"http://127.0.0.1:{free_port()}"
    log = pathlib.Path("target/litellm.log")
    log.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
        upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        file = pathlib.Path(folder) / "config.yaml"
        # JSON is YAML.
        file.write_text(json.dumps(config(f"http://127.0.0.1:{upstream.server_port}")))
        command = [str(python.parent / "litellm"), "--config", str(file), "--host", "127.0.0.1"]
        command += ["--port", base.rsplit(":", 1)[1]]
        env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
        proxy = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env)
        try:
            wait_until_ready(base, proxy, log)
            env = {
                **os.environ,
                "TURNWHEEL_BASE_URL": f"{base}/v1",
                "TURNWHEEL_MODEL": "mock-text",
                "TURNWHEEL_KEY": KEY,
            }
            return subprocess.call(sys.argv[2:], env=env)
        finally:
            proxy.kill()
            proxy.wait()


if __name__ == "__main__":
    sys.exit(main())

"""Models: the OpenAI-compatible adapter, the scripted one, and adapters written in Python."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from . import _turnwheel
from ._errors import ModelError, UsageError


class OpenAIChat(_turnwheel.OpenAIChatOptions):
    """Chat completions of an OpenAI-compatible server: OpenAI, DeepSeek, llama.cpp, vLLM, Ollama, gateways.

    ``base_url`` ends before ``/chat/completions``. Without a key none is sent, as local servers like it;
    ``api_key_env`` names an environment variable that is read at every request. Times are seconds. ``extra`` are
    members for every request body; ``models`` says what is known of a model, by name: ``context_window``,
    ``default_max_tokens``, ``efforts``, ``default_effort``, ``input_modalities``.

    Raises ``UsageError`` for a URL or option that cannot be used.
    """

    def __new__(
        cls,
        base_url: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        idle_timeout: float | None = None,
        event_idle_timeout: float | None = None,
        connect_timeout: float | None = None,
        allow_insecure_http: bool = False,
        max_tokens_member: str | None = None,
        reasoning_in_history: bool = False,
        thinking_member: bool = False,
        extra: Mapping[str, Any] | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        options = {
            "base_url": base_url,
            "api_key": api_key,
            "api_key_env": api_key_env,
            "headers": dict(headers or {}),
            "idle_timeout": idle_timeout,
            "event_idle_timeout": event_idle_timeout,
            "connect_timeout": connect_timeout,
            "allow_insecure_http": allow_insecure_http,
            "max_tokens_member": max_tokens_member,
            "reasoning_in_history": reasoning_in_history,
            "thinking_member": thinking_member,
            "extra": dict(extra or {}),
            "models": {name: dict(info) for name, info in (models or {}).items()},
        }
        return super().__new__(cls, options)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a scripted model. ``calls`` are ``(id, tool, arguments)``; arguments are a dict, or raw text.

    ``chunk_size`` cuts texts into deltas of so many characters, ``delay`` waits so many seconds before each chunk.
    ``error`` is ``{"code", "message"}`` and ends the answer. ``usage`` is ``{"inputTokens", "outputTokens", ...}``.
    """

    text: str | None = None
    calls: Iterable[tuple[str, str, Mapping[str, Any] | str]] = ()
    reasoning: str | None = None
    chunk_size: int | None = None
    delay: float | None = None
    usage: Mapping[str, int] | None = None
    error: Mapping[str, Any] | None = field(default=None)

    def _plain(self) -> dict[str, Any]:
        calls = [{"id": id, "name": name, "arguments": arguments} for id, name, arguments in self.calls]
        return {
            "text": self.text,
            "calls": calls,
            "reasoning": self.reasoning,
            "chunk_size": self.chunk_size,
            "delay": self.delay,
            "usage": dict(self.usage) if self.usage is not None else None,
            "error": dict(self.error) if self.error is not None else None,
        }


class Scripted(_turnwheel.ScriptedModel):
    """A model that answers from a script, offline: each reply a ``str`` or a :class:`Reply`, in order.

    ``otherwise`` answers when the script is used up; without it such a request fails. ``keep_requests`` remembers what
    was asked in ``requests``. ``request_count`` and ``remaining`` count.
    """

    def __new__(cls, *replies: str | Reply, otherwise: str | Reply | None = None, keep_requests: bool = False) -> Self:
        script = super().__new__(cls, keep_requests)
        script.add(*replies)
        if otherwise is not None:
            script.set_repeated(_reply(otherwise))
        return script

    def add(self, *replies: str | Reply) -> None:
        """Adds replies to the end of the script."""
        for reply in replies:
            self.push(_reply(reply))


def _reply(reply: str | Reply) -> dict[str, Any]:
    return (Reply(reply) if isinstance(reply, str) else reply)._plain()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What an adapter written in Python is asked.

    ``config`` is how to call the model (``provider``, ``model``, ``maxTokens``, ...), ``system`` the system prompt,
    ``tools`` the tools as ``{"name", "description", "parameters"}``, ``messages`` the history. ``signal`` fires when
    the turn is cancelled; the generator's task is cancelled then, too.
    """

    config: dict[str, Any]
    system: str | None
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    session_id: str | None
    signal: _turnwheel.Signal


Adapter = Callable[[ModelRequest], AsyncIterable[str | Mapping[str, Any]]]
"""An adapter in Python: an async generator of text pieces, or of chunks ``{"type": ...}``."""


async def feed(adapter: Adapter, members: dict[str, Any], sink: Any) -> None:
    """Runs an adapter. Plain texts become one text block; called by the native half."""
    request = members["request"]
    stream = adapter(
        ModelRequest(
            config=request["config"],
            system=request.get("system"),
            tools=request.get("tools", []),
            messages=request["messages"],
            session_id=request.get("sessionId"),
            signal=members["signal"],
        )
    )
    if not hasattr(stream, "__aiter__"):
        raise UsageError("an adapter is an async generator function: it yields its chunks")
    texts: list[str] = []
    finished = False
    async for piece in stream:
        if isinstance(piece, str):
            if not texts:
                sink.push({"type": "block-start", "index": 0, "blockType": "text"})
            texts.append(piece)
            sink.push({"type": "text-delta", "index": 0, "text": piece})
            continue
        if not isinstance(piece, Mapping):
            kind = type(piece).__name__
            raise ModelError(f"an adapter yields texts and chunks (dicts), not {kind}", code="MALFORMED_CHUNK")
        if texts and piece.get("index") == 0:
            raise ModelError("index 0 is the block of the plain texts", code="MALFORMED_CHUNK")
        finished = finished or piece.get("type") == "finish"
        if finished:
            _end_text(texts, sink)
        sink.push(dict(piece))
    if not finished:
        _end_text(texts, sink)
        sink.push({"type": "finish", "reason": {"kind": "stop"}})


def _end_text(texts: list[str], sink: Any) -> None:
    if texts:
        sink.push({"type": "block-end", "index": 0, "block": {"type": "text", "text": "".join(texts)}})
        texts.clear()

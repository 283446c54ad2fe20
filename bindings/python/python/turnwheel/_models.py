"""Models: the OpenAI-compatible adapter, the scripted one, and adapters written in Python."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from . import _turnwheel
from ._errors import ModelError, UsageError

Key = str | Callable[[], str]


def _common(
    base_url: str,
    api_key: Key | None,
    headers: Mapping[str, str] | None,
    extra: Mapping[str, Any] | None,
    models: Mapping[str, Mapping[str, Any]] | None,
    rest: dict[str, Any],
) -> tuple[dict[str, Any], Callable[[], str] | None]:
    options = {
        "base_url": base_url,
        "api_key": api_key if isinstance(api_key, str) else None,
        "headers": dict(headers or {}),
        "extra": dict(extra or {}),
        "models": {name: dict(info) for name, info in (models or {}).items()},
        **rest,
    }
    if api_key is not None and not isinstance(api_key, str) and not callable(api_key):
        raise UsageError("`api_key` is a str or a function that returns one")
    return options, api_key if callable(api_key) else None


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


class OpenAIChat(_turnwheel.HttpAdapterOptions):
    """Chat completions of an OpenAI-compatible server: OpenAI, DeepSeek, llama.cpp, vLLM, Ollama, gateways.

    ``base_url`` ends before ``/chat/completions``. ``api_key`` is a text, or a function that is asked once a request
    and must not block; ``api_key_env`` names an environment variable that is read at every request. Without a key
    none is sent, as local servers like it. Times are seconds: ``connect_timeout``, ``first_byte_timeout``,
    ``idle_timeout`` without a byte, ``event_idle_timeout`` without an event, ``total_timeout``. ``ca_file`` adds a
    private authority, ``proxy`` overrides the environment's (``""`` for none). ``extra`` are members for every request
    body; ``models`` says what is known of a model, by name: ``context_window``, ``default_max_tokens``, ``efforts``,
    ``default_effort``, ``input_modalities``. ``images_folder`` holds attachments by their hash.

    ``dialect`` is whose way of taking requests the server follows: ``generic``, ``openai``, ``deepseek``, ``vllm``,
    ``llama.cpp``, ``ollama``, ``openrouter`` or ``litellm``; by default the host decides.

    Raises ``UsageError`` for a URL or option that cannot be used.
    """

    def __new__(
        cls,
        base_url: str,
        *,
        api_key: Key | None = None,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        first_byte_timeout: float | None = None,
        idle_timeout: float | None = None,
        event_idle_timeout: float | None = None,
        total_timeout: float | None = None,
        allow_insecure_http: bool = False,
        ca_file: str | os.PathLike[str] | None = None,
        proxy: str | None = None,
        http2: bool = False,
        images_folder: str | os.PathLike[str] | None = None,
        dialect: str | None = None,
        max_tokens_member: str | None = None,
        reasoning_in_history: bool | None = None,
        thinking_member: bool | None = None,
        asks_usage: bool = True,
        extra: Mapping[str, Any] | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        rest = {
            "api_key_env": api_key_env,
            "connect_timeout": connect_timeout,
            "first_byte_timeout": first_byte_timeout,
            "idle_timeout": idle_timeout,
            "event_idle_timeout": event_idle_timeout,
            "total_timeout": total_timeout,
            "allow_insecure_http": allow_insecure_http,
            "ca_file": _path(ca_file),
            "proxy": proxy,
            "http2": http2,
            "images_folder": _path(images_folder),
            "dialect": dialect,
            "max_tokens_member": max_tokens_member,
            "reasoning_in_history": reasoning_in_history,
            "thinking_member": thinking_member,
            "asks_usage": asks_usage,
        }
        options, key = _common(base_url, api_key, headers, extra, models, rest)
        return super().__new__(cls, "openai-chat", options, key)


class OpenAIResponses(_turnwheel.HttpAdapterOptions):
    """The responses wire of OpenAI and servers that speak it. ``base_url`` ends before ``/responses``.

    The whole history is sent every time and nothing is stored at the provider. ``reasoning_summary`` (``"auto"``) asks
    for visible reasoning; ``encrypted_reasoning=False`` is for servers that refuse it. The other options are those of
    :class:`OpenAIChat`.
    """

    def __new__(
        cls,
        base_url: str = "https://api.openai.com/v1",
        *,
        api_key: Key | None = None,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        first_byte_timeout: float | None = None,
        idle_timeout: float | None = None,
        event_idle_timeout: float | None = None,
        total_timeout: float | None = None,
        allow_insecure_http: bool = False,
        ca_file: str | os.PathLike[str] | None = None,
        proxy: str | None = None,
        http2: bool = False,
        images_folder: str | os.PathLike[str] | None = None,
        reasoning_summary: str | None = None,
        encrypted_reasoning: bool = True,
        extra: Mapping[str, Any] | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        rest = {
            "api_key_env": api_key_env,
            "connect_timeout": connect_timeout,
            "first_byte_timeout": first_byte_timeout,
            "idle_timeout": idle_timeout,
            "event_idle_timeout": event_idle_timeout,
            "total_timeout": total_timeout,
            "allow_insecure_http": allow_insecure_http,
            "ca_file": _path(ca_file),
            "proxy": proxy,
            "http2": http2,
            "images_folder": _path(images_folder),
            "reasoning_summary": reasoning_summary,
            "encrypted_reasoning": encrypted_reasoning,
        }
        options, key = _common(base_url, api_key, headers, extra, models, rest)
        return super().__new__(cls, "openai-responses", options, key)


class AnthropicMessages(_turnwheel.HttpAdapterOptions):
    """Anthropic's messages wire: Anthropic, and servers that speak it. ``base_url`` ends before ``/v1/messages``.

    Signed thinking goes back as it came. ``cache_markers`` marks prompt, tools and the last two user messages as
    cacheable; ``thinking_budgets`` gives efforts a budget in tokens, as older models want it; ``bearer`` sends the key
    as ``authorization``, as gateways want it. The other options are those of :class:`OpenAIChat`.
    """

    def __new__(
        cls,
        base_url: str = "https://api.anthropic.com",
        *,
        api_key: Key | None = None,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        first_byte_timeout: float | None = None,
        idle_timeout: float | None = None,
        event_idle_timeout: float | None = None,
        total_timeout: float | None = None,
        allow_insecure_http: bool = False,
        ca_file: str | os.PathLike[str] | None = None,
        proxy: str | None = None,
        http2: bool = False,
        images_folder: str | os.PathLike[str] | None = None,
        version: str | None = None,
        betas: Iterable[str] = (),
        cache_markers: bool = True,
        bearer: bool = False,
        default_max_tokens: int | None = None,
        thinking_budgets: Mapping[str, int] | None = None,
        extra: Mapping[str, Any] | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        rest = {
            "api_key_env": api_key_env,
            "connect_timeout": connect_timeout,
            "first_byte_timeout": first_byte_timeout,
            "idle_timeout": idle_timeout,
            "event_idle_timeout": event_idle_timeout,
            "total_timeout": total_timeout,
            "allow_insecure_http": allow_insecure_http,
            "ca_file": _path(ca_file),
            "proxy": proxy,
            "http2": http2,
            "images_folder": _path(images_folder),
            "version": version,
            "betas": list(betas),
            "cache_markers": cache_markers,
            "bearer": bearer,
            "default_max_tokens": default_max_tokens,
            "thinking_budgets": dict(thinking_budgets or {}),
        }
        options, key = _common(base_url, api_key, headers, extra, models, rest)
        return super().__new__(cls, "anthropic-messages", options, key)


HttpAdapter = OpenAIChat | OpenAIResponses | AnthropicMessages
"""An adapter over HTTP."""


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
    if texts and not finished:
        _end_text(texts, sink)
        sink.push({"type": "finish", "reason": {"kind": "stop"}})


def _end_text(texts: list[str], sink: Any) -> None:
    if texts:
        sink.push({"type": "block-end", "index": 0, "block": {"type": "text", "text": "".join(texts)}})
        texts.clear()

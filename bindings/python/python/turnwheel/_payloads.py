"""What listeners get. Events of the log are :class:`turnwheel.Event`; everything else is one of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._agent import Agent
    from ._turnwheel import Signal

JSON = Any
"""Anything JSON can carry: ``None``, ``bool``, ``int``, ``float``, ``str``, lists and dicts of these."""

Next = Callable[[], Awaitable[Any]]
"""The continuation a waterfall listener gets: ``await next()`` is the decision of everything inside it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened. ``type`` is the event's name; ``data`` its members:

    ``agent/status`` ``status`` · ``agent/inbox/inserted`` and ``discarded`` ``message`` · ``agent/inbox/claimed``
    ``message, turn`` · ``agent/session-start`` ``source`` (``"startup"`` or ``"resume"``) · ``agent/error``
    ``turn, step, error`` (the exception) · ``tools/result`` ``call_id, name, arguments, content, is_error, error,
    value``. The others have none. Members can be read as attributes, too.
    """

    type: str
    agent: Agent | None
    session_id: str | None
    data: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            members = ", ".join(self.data) or "none"
            raise AttributeError(f"{self.type} has no member {name!r}; its members: {members}") from None


@dataclass(slots=True)
class Payload:
    """What every waterfall listener gets: whose doing it is, and a signal that fires when the turn is cancelled."""

    agent: Agent
    signal: Signal


@dataclass(slots=True)
class PreStep(Payload):
    """``agent/pre-step``: a step is proposed. Edit ``messages`` in place before ``await next()``.

    Decision: ``{"kind": "enter", "messages": [...]}`` or ``{"kind": "reject"}``.
    """

    turn: int
    step: int
    messages: list[dict[str, Any]]


@dataclass(slots=True)
class Request(Payload):
    """``agent/request``: a model request is about to be built.

    Decision: ``{"provider", "model", "reasoningEffort"?, "temperature"?, "maxTokens"?, "stop"?}``; ``None`` members
    mean absent.
    """

    turn: int
    step: int


@dataclass(slots=True)
class RequestError(Payload):
    """``agent/request-error``: a model request failed. Decision: ``"retry"`` or ``"terminal"``.

    ``retry_policy`` is the route's, ``{"mode", "maxRetries", "retryableCodes", "initialDelayMs", "maxDelayMs",
    "jitterRatio"}``; ``None`` when no route served the request.
    """

    turn: int
    step: int
    provider: str
    failure: dict[str, Any]
    retry_policy: dict[str, Any] | None


@dataclass(slots=True)
class Assemble(Payload):
    """``system-prompt/assemble``: a prompt is being put together.

    Decision: ``{"sections": [{"name", "order", "text"}], "tools": [...], "variables": {...}, "contexts": [...]}``.
    """


@dataclass(slots=True)
class PreExecute(Payload):
    """``tools/pre-execute``: may this call run?

    Decision: ``{"kind": "allow"}``, ``{"kind": "deny", "reason": ...}`` or ``{"kind": "ask", "reason"?}``.
    """

    call_id: str
    name: str
    arguments: JSON


@dataclass(slots=True)
class PostExecute(Payload):
    """``tools/post-execute``: is this result acceptable?

    Decision: ``{"kind": "accept", "content"?, "value"?, "contexts"?}`` or ``{"kind": "block", "feedback": ...}``.
    """

    call_id: str
    name: str
    arguments: JSON
    content: list[dict[str, Any]]
    is_error: bool
    error: tuple[str, str] | None
    value: JSON


@dataclass(slots=True)
class TurnStopping(Payload):
    """``agent/turn-stopping``: the turn is about to close. ``agent.inject(...)`` or ``steer`` keeps it going."""

    turn: int


PAYLOADS: dict[str, type[Payload]] = {
    "agent/pre-step": PreStep,
    "agent/request": Request,
    "agent/request-error": RequestError,
    "system-prompt/assemble": Assemble,
    "tools/pre-execute": PreExecute,
    "tools/post-execute": PostExecute,
    "agent/turn-stopping": TurnStopping,
}

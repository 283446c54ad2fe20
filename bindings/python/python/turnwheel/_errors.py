"""The errors: one class a subject. ``code`` is stable and the same in every language."""

from __future__ import annotations

from typing import Any


class TurnwheelError(Exception):
    """Anything turnwheel raises.

    ``code`` is a stable name such as ``"DUPLICATE_MESSAGE"``, ``number`` its number in C, ``context`` the facts as a
    dict (which id, which name), ``failure`` what a model's provider reported, if that is what failed. ``retry`` is
    advice on repeating the very same call: ``None`` where that cannot help, else how many seconds to wait first (0.0:
    as soon as what stands in the way is gone).

    Raise it, or :class:`ToolError`, from a tool with a ``code`` of your own: name and code reach the log.
    """

    default_code = "HOST_ERROR"

    def __init_subclass__(cls) -> None:
        # Users know them by this name, and tracebacks should, too.
        cls.__module__ = "turnwheel"

    def __init__(self, message: str = "", *, code: str | None = None, context: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code: str = code or self.default_code
        self.number: int = 599
        self.context: dict[str, Any] = context or {}
        self.failure: dict[str, Any] | None = None
        self.retry: float | None = None
        # A traceback shows it below the message, which stays what it is.
        self.add_note(f"code: {self.code}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}: {self})"


TurnwheelError.__module__ = "turnwheel"


class UsageError(TurnwheelError):
    """1xx: an argument, option, schema or message that cannot be used."""

    default_code = "INVALID_ARGUMENT"


class StateError(TurnwheelError):
    """2xx: not now: disposed, busy, not published, aborted, waiting for oneself."""


class LogError(TurnwheelError):
    """3xx: the session log refuses an event, or is damaged."""


class RegistryError(TurnwheelError):
    """4xx: a name or id is taken or unknown."""


class HostCodeError(TurnwheelError):
    """5xx: a listener, tool or adapter failed, or was called from the wrong place."""


class WrongThreadError(HostCodeError, RuntimeError):
    """An object was used on a thread that is not its event loop's."""


class ModelError(TurnwheelError):
    """6xx: a model call failed; ``failure`` has the provider's facts. An adapter of your own raises it with a failure
    of ``code``, ``message`` and, as known, ``status`` and ``providerRetryAfterMs``: retry policies go by them."""

    default_code = "MODEL_FAILED"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        context: dict[str, Any] | None = None,
        failure: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=code, context=context)
        if failure is not None:
            self.failure = {"code": "UNKNOWN", "message": message, **failure}


class ToolError(TurnwheelError):
    """7xx: a tool call failed. Raise it from a tool to answer the model with a coded failure."""

    default_code = "TOOL_FAILED"


class StoreError(TurnwheelError):
    """8xx: the store could not read or write. Stores of your own raise it, with a ``code`` where one is called for."""

    default_code = "STORE_FAILED"


class BugError(TurnwheelError):
    """9xx: a bug in turnwheel; please report it."""


_BLOCKS: dict[int, type[TurnwheelError]] = {
    1: UsageError,
    2: StateError,
    3: LogError,
    4: RegistryError,
    5: HostCodeError,
    6: ModelError,
    7: ToolError,
    8: StoreError,
    9: BugError,
}


def make(
    code: str,
    number: int,
    message: str,
    context: dict[str, Any],
    failure: dict[str, Any] | None,
    retry: float | None,
    native: object,
) -> TurnwheelError:
    """The exception of a core error; called by the native half, whose error it carries back in."""
    kind = WrongThreadError if code == "WRONG_THREAD" else _BLOCKS.get(number // 100, HostCodeError)
    error = kind(message, code=code, context=context)
    error.number = number
    error.failure = failure
    error.retry = retry
    error._native = native  # type: ignore[attr-defined]
    return error

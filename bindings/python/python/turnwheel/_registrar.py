"""Registering tools, listeners, prompt inputs and models, on a context or on one agent."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, overload

from . import _turnwheel
from ._errors import UsageError
from ._models import Adapter, AnthropicMessages, HttpAdapter, OpenAIChat, OpenAIResponses, Scripted
from ._schema import Signature

F = TypeVar("F", bound=Callable[..., Any])
G = TypeVar("G", bound=Callable[[Any], Any])


class Disposable(Protocol):
    """What the native half gives for a registration."""

    def dispose(self) -> None: ...


Apply = Callable[["_turnwheel.CtxRef", "ListenerHost"], Disposable]
PromptText = str | Callable[[Any], str | None] | Callable[[Any], Awaitable[str | None]]
"""A text, or a function of the agent that gives it anew at every step, plain or ``async``."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool may return instead of a plain value: content blocks, and data that the model does not see.

    ``content`` is a list of blocks such as ``{"type": "text", "text": ...}``; without it ``value`` is shown.
    """

    value: Any = None
    content: list[dict[str, Any]] | None = None
    meta: Any = None


class Registration:
    """One registration. ``dispose()`` takes it back; a second call does nothing."""

    def __init__(self, apply: Apply, forget: Callable[[Registration], None]) -> None:
        self._apply, self._forget = apply, forget
        self._native: Disposable | None = None
        self._context = contextvars.copy_context()

    def _bind(self, ctx: _turnwheel.CtxRef, host: ListenerHost) -> None:
        # A copy: an ongoing registration of this context may be what registers again.
        self._native = self._context.copy().run(self._apply, ctx, host)

    def dispose(self) -> None:
        """Takes the registration back."""
        self._forget(self)
        if self._native is not None:
            self._native.dispose()
            self._native = None


class ListenerHost:
    """The workers of asynchronous listeners on one loop: a task each, which hears its notifications in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._workers: dict[asyncio.Task[None], _turnwheel.Queue] = {}

    def queue(self, name: str, listener: Callable[[Any], Awaitable[None]]) -> _turnwheel.Queue:
        """A queue and the worker that drains it into ``listener``."""
        queue = _turnwheel.Queue(self._loop)
        worker = self._loop.create_task(self._work(name, queue, listener), name=f"turnwheel listener of {name}")
        self._workers[worker] = queue
        worker.add_done_callback(self._workers.pop)
        return queue

    async def _work(self, name: str, queue: _turnwheel.Queue, listener: Callable[[Any], Awaitable[None]]) -> None:
        worker = asyncio.current_task()
        assert worker is not None, "the worker is a task"
        while True:
            for event in queue.drain():
                try:
                    await listener(event)
                except (KeyboardInterrupt, SystemExit, GeneratorExit):
                    raise
                except BaseException as error:
                    # A listener that lets a `CancelledError` of its own out has failed; only this task's ends it.
                    if isinstance(error, asyncio.CancelledError) and worker.cancelling():
                        raise
                    message = f"a listener of {name} failed"
                    self._loop.call_exception_handler({"message": message, "exception": error})
            if len(queue):
                continue
            if queue.closed:
                return
            await queue.wait()

    async def drained(self) -> None:
        """Gives the listeners the time to hear what was published; a listener that waits is not waited for."""
        for _ in range(64):
            if not any(len(queue) for queue in self._workers.values()):
                return
            await asyncio.sleep(0)

    def close(self) -> None:
        """Ends the workers."""
        for worker in list(self._workers):
            worker.cancel()


def _is_async(function: Any) -> bool:
    # An object with `async def __call__` is as good as a function.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class Registrar:
    """What can be registered, on a :class:`Context` for every agent, on an :class:`Agent` for that agent only."""

    def _register(self, apply: Apply) -> Registration:
        raise NotImplementedError

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        parallel: bool | Callable[[Any], bool] = False,
        timeout: float | None = None,
        thread: bool = True,
        checked: bool = True,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        parallel: bool | Callable[[Any], bool] = False,
        timeout: float | None = None,
        thread: bool = True,
        checked: bool = True,
    ) -> Any:
        """Lets the model call a function: ``@ctx.tool`` or ``@ctx.tool(name=...)``.

        The schema comes from the annotations and the description from the docstring; ``parameters`` gives a schema of
        your own. A parameter annotated ``turnwheel.ToolCall`` gets the call and is not shown to the model. ``async``
        functions run on the loop and are cancelled with the turn. Plain ones run in a thread, and their end is waited
        for, unless ``thread=False``. ``parallel`` lets calls overlap their siblings; a function of the arguments
        decides per call. ``timeout`` is in seconds. ``checked=False`` hands over arguments as they come, which goes
        with a ``parameters`` of your own.

        What the function returns must be JSON (dataclasses become objects), or a :class:`ToolOutput`; anything else is
        ``INVALID_TOOL_OUTPUT`` for the model. What it raises is the model's answer.

        Raises ``UsageError`` for annotations or schemas that cannot be used.
        """

        options: Any = {"name": name, "description": description, "parameters": parameters, "parallel": parallel}
        options |= {"timeout": timeout, "thread": thread, "checked": checked}

        def register(function: Any) -> Any:
            self.add_tool(function, **options)
            return function

        return register if function is None else register(function)

    def add_tool(
        self,
        function: Callable[..., Any],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        parallel: bool | Callable[[Any], bool] = False,
        timeout: float | None = None,
        thread: bool = True,
        checked: bool = True,
    ) -> Registration:
        """As :meth:`tool`, for a function that is there already: gives the registration, which takes the tool back."""
        tool_name = name or getattr(function, "__name__", "")
        text = description if description is not None else inspect.getdoc(function) or ""
        body, schema = _body(function, parameters, thread)
        _turnwheel.check_schema(schema)
        definition = {
            "name": tool_name,
            "description": text,
            "parameters": schema,
            "timeout": timeout,
            "cancels": _is_async(function),
            "checked": checked,
        }
        classify = parallel if callable(parallel) else ((lambda _: True) if parallel else None)
        return self._register(lambda ctx, _: ctx.tool(definition, body, classify))

    def code_runner(self, function: F, /) -> F:
        """Registers what runs the model's programs: a decorator of an ``async`` function such as
        ``async def run(call: ToolCall, program: str)``. Its schema comes from its annotations; inside it
        ``await call.call(name, arguments)`` calls a tool. The model sees it as ``run_code`` where
        :meth:`present_tools` asks for it.
        """
        description = inspect.getdoc(function) or ""
        body, schema = _body(function, None, False)
        _turnwheel.check_schema(schema)
        definition = {
            "name": "run_code",
            "description": description,
            "parameters": schema,
            "timeout": None,
            "cancels": _is_async(function),
            "checked": True,
        }
        self._register(lambda ctx, _: ctx.runner(definition, body))
        return function

    def present_tools(self, mode: Literal["native", "code", "both"]) -> Registration:
        """Sets how the model uses tools: by calls, by programs for :meth:`code_runner`, or both. The nearest
        declaration wins; a second one in the same scope is ``DUPLICATE_NAME``."""
        return self._register(lambda ctx, _: ctx.present(mode))

    def guard(self, function: G, /) -> G:
        """Lets a plain function deny tool calls that policy has allowed: ``@ctx.guard``. It gets the call
        (:class:`PreExecute`) and returns a reason for the model, or ``None``. Guards can only tighten; one that raises
        fails the call.
        """
        if _is_async(function):
            raise UsageError("a guard answers at once and is no async function; tools/pre-execute may wait")
        self._register(lambda ctx, _: ctx.guard(function))
        return function

    def restrict_tools(self, *, allow: list[str] | None = None, deny: list[str] | None = None) -> Registration:
        """Hides inherited tools from an agent: all but ``allow``, and ``deny``. The agent's own tools are exempt, and
        tools that are registered later are filtered, too. For an agent's scope only; a name that is no inherited tool
        is refused."""
        return self._register(lambda ctx, _: ctx.restrict(allow, deny))

    def check_events(self, function: G, /) -> G:
        """Lets a plain function refuse events before they are committed: ``@ctx.check_events``. It gets the
        :class:`Event` that is about to be logged and raises to refuse it; whoever appends gets what it raised. It may
        read the session, and not append."""
        if _is_async(function):
            raise UsageError("an event check answers at once and is no async function")
        self._register(lambda ctx, _: ctx.check_events(function))
        return function

    @overload
    def on(self, name: str, /, *, types: list[str] | None = None) -> Callable[[F], F]: ...

    @overload
    def on(self, name: str, listener: Callable[..., Any], /, *, types: list[str] | None = None) -> Registration: ...

    def on(self, name: str, listener: Any = None, /, *, types: list[str] | None = None) -> Any:
        """Hears an event: ``@ctx.on("session/event")``, or ``ctx.on("session/event", listener)``.

        *Notifications* (``session/event``, ``agent/status``, ...) call ``listener(event)``. A plain function is called
        at the point of delivery, before what caused the event goes on. An ``async`` one has a worker task of its own,
        which hears its events in order and a little later; that costs about a microsecond an event. ``types`` picks
        events of ``session/event`` by their type, before any Python object is made. What a listener raises is
        reported to the loop's exception handler; only a plain listener of ``agent/created`` vetoes by raising.

        *Waterfalls* (``agent/pre-step``, ``agent/request``, ``agent/request-error``, ``tools/pre-execute``,
        ``tools/post-execute``, ``system-prompt/assemble``) call ``listener(payload, next)``, plain or ``async``:
        ``await next()`` gives the decision of everything inside, and what the listener returns is the decision; after
        ``await next()``, ``None`` keeps it.

        ``agent/turn-stopping`` calls ``listener(payload)`` and waits for it.

        Raises ``UsageError`` (``UNKNOWN_OPTION``) for a name that is no event.
        """
        kind = _turnwheel.event_kind(name)
        if types is not None and name != "session/event":
            raise UsageError(f"types= picks events of session/event, not of {name}", code="UNKNOWN_OPTION")

        if listener is not None and not callable(listener):
            raise UsageError(f"a listener of {name} is a function, not {type(listener).__name__}")

        def apply(ctx: _turnwheel.CtxRef, host: ListenerHost) -> Disposable:
            if kind != "notice":
                return ctx.waterfall(name, listener)
            if _is_async(listener):
                return ctx.on_queue(name, host.queue(name, listener), types)
            return ctx.on(name, listener, types)

        def decorate(function: Any) -> Any:
            nonlocal listener
            listener = function
            self._register(apply)
            return function

        return decorate if listener is None else self._register(apply)

    def identity(self) -> Registration:
        """Adds the section that tells the model what runs it."""
        return self._register(lambda ctx, _: ctx.prompt("identity", "", 0.0, None))

    def persona(self, text: PromptText) -> Registration:
        """Adds the section that tells the model who it is."""
        return self._register(lambda ctx, _: ctx.prompt("persona", "", 0.0, text))

    def suppress_contexts(self) -> Registration:
        """Keeps runtime contexts from being sent, while it is registered."""
        return self._register(lambda ctx, _: ctx.prompt("suppress-contexts", "", 0.0, None))

    def section(self, name: str, text: PromptText, *, order: float = 0.0, complete: bool = False) -> Registration:
        """Adds a section of the system prompt. Sections sort by ``order``; a ``complete`` one is used alone."""
        return self._register(lambda ctx, _: ctx.prompt("complete" if complete else "section", name, order, text))

    def variable(self, name: str, text: PromptText | None) -> Registration:
        """Sets a variable: ``{{name}}`` in sections and contexts is replaced by it."""
        return self._register(lambda ctx, _: ctx.prompt("variable", name, 0.0, text))

    def context(self, name: str, text: PromptText, *, order: float = 0.0) -> Registration:
        """Adds a runtime context: text that changes while an agent lives, sent as a message when it does."""
        return self._register(lambda ctx, _: ctx.prompt("context", name, order, text))


def _body(function: Any, parameters: Mapping[str, Any] | None, thread: bool) -> tuple[Callable[..., Any], Any]:
    arguments: Callable[[_turnwheel.ToolCall, Any], dict[str, Any]]
    if parameters is None:
        signature = Signature(function)
        schema, arguments = signature.parameters, signature.arguments
    else:
        schema, arguments = dict(parameters), _described(function)

    if _is_async(function):

        async def body(call: _turnwheel.ToolCall, given: Any) -> Any:
            return _output(await function(**arguments(call, given)))

        return body, schema
    if thread:

        async def body_in_thread(call: _turnwheel.ToolCall, given: Any) -> Any:
            return _output(await asyncio.to_thread(_threaded, function, arguments(call, given)))

        return body_in_thread, schema
    return lambda call, given: _output(function(**arguments(call, given))), schema


def _threaded(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:
        # No future carries one: whoever awaits it would wait for ever.
        raise RuntimeError("the tool raised StopIteration") from error


def _described(function: Any) -> Callable[[_turnwheel.ToolCall, Any], dict[str, Any]]:
    """For a schema of the caller's own: members are keyword arguments as they are; a function of the call alone finds
    them in it."""
    hints = inspect.get_annotations(function, eval_str=False)
    wants = [name for name, hint in hints.items() if hint is _turnwheel.ToolCall or _names_call(hint)]
    if wants and inspect.signature(function).parameters.keys() == set(wants):
        return lambda call, _: dict.fromkeys(wants, call)

    def arguments(call: _turnwheel.ToolCall, given: Any) -> dict[str, Any]:
        return {**given, **dict.fromkeys(wants, call)}

    return arguments


def _names_call(hint: Any) -> bool:
    # As postponed annotations have it: `ToolCall`, or `tw.ToolCall`.
    return isinstance(hint, str) and hint.rsplit(".", 1)[-1] == "ToolCall"


def _output(value: Any) -> tuple[Any, Any, Any]:
    if isinstance(value, ToolOutput):
        return value.value, value.content, value.meta
    if hasattr(type(value), "model_dump"):
        # A Pydantic model, as its JSON.
        return value.model_dump(mode="json"), None, None
    return value, None, None


class ModelSelection:
    """A route that may be switched while agents run, without tearing a prompt from its request.

    ``install`` it on an agent or in its ``setup``; one selection may rule several agents.
    """

    def __init__(
        self, provider: str | None = None, model: str | None = None, *, reasoning_effort: str | None = None
    ) -> None:
        self._current: tuple[str, str, str | None] | None = None
        self._natives: list[_turnwheel.SelectionRef] = []
        self.select(provider, model, reasoning_effort=reasoning_effort)

    def select(
        self, provider: str | None = None, model: str | None = None, *, reasoning_effort: str | None = None
    ) -> None:
        """Switches; a step under way keeps what it was assembled with. Without arguments nothing is selected. An absent
        ``reasoning_effort`` clears an inherited one."""
        if (provider is None) != (model is None):
            raise UsageError("a selection names a provider and a model, or neither")
        self._current = (provider, model, reasoning_effort) if provider is not None and model is not None else None
        for native in self._live():
            native.select(self._current)

    def _live(self) -> list[_turnwheel.SelectionRef]:
        """Where it is installed. Agents that ended are forgotten."""
        self._natives = [native for native in self._natives if native.is_live()]
        return self._natives

    @property
    def current(self) -> dict[str, str | None] | None:
        """``provider``, ``model`` and ``reasoning_effort``; ``None`` where nothing is selected."""
        if self._current is None:
            return None
        return dict(zip(("provider", "model", "reasoning_effort"), self._current, strict=True))

    def install(self, scope: Registrar) -> Registration:
        """Lets the selection rule an agent, or every agent of a context."""

        def apply(ctx: _turnwheel.CtxRef, _: ListenerHost) -> Disposable:
            native = ctx.select_model(self._current)
            self._live().append(native)
            return native

        return scope._register(apply)


class Models:
    """The model routes of a context: ``ctx.llm``."""

    def __init__(self, owner: Registrar) -> None:
        self._owner = owner

    def register(
        self,
        provider: str,
        adapter: HttpAdapter | Scripted | _turnwheel.ModelDouble | Adapter,
        *,
        retry: Mapping[str, Any] | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Registration:
        """Lets an adapter serve a provider route. Each route has one; a second is ``DUPLICATE_ADAPTER``.

        An adapter is an :class:`OpenAIChat`, an :class:`OpenAIResponses`, an :class:`AnthropicMessages`, a
        :class:`Scripted`, or an async generator function of a :class:`ModelRequest` that yields text pieces, or chunks
        as the log has them.

        ``retry`` is the route's policy for :meth:`retry`: ``mode`` (``"normal"`` or ``"always"``), ``max_retries``,
        ``retryable_codes``, ``initial_delay``, ``max_delay`` (seconds), ``jitter_ratio``. Limits per minute are shared
        by all agents of the route. ``models`` says what is known of the models that an adapter of your own serves, as
        :class:`OpenAIChat` has it.
        """
        native = (OpenAIChat, OpenAIResponses, AnthropicMessages, Scripted, _turnwheel.ModelDouble)
        if not isinstance(adapter, native) and not callable(adapter):
            kind = type(adapter).__name__
            known = "an OpenAIChat, an OpenAIResponses, an AnthropicMessages, a Scripted"
            raise UsageError(f"an adapter is {known} or an async generator function, not {kind}")
        options = {
            "retry": dict(retry) if retry is not None else None,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        known = {name: dict(info) for name, info in (models or {}).items()}
        return self._owner._register(lambda ctx, _: ctx.adapter(provider, adapter, options, known))

    def retry(self) -> Registration:
        """Makes failed requests again, by the policy of their route. Each retry is in the log: ``llm/retry``."""
        return self._owner._register(lambda ctx, _: ctx.retry())

    def fallback(self, *routes: Mapping[str, Any]) -> Registration:
        """Asks other routes, in order, once a route has failed for good: ``{"provider", "model", ...}`` each.

        The rest of the turn stays with the route that worked. Each fall is in the log: ``llm/fallback``.
        """
        return self._owner._register(lambda ctx, _: ctx.fallback([dict(route) for route in routes]))

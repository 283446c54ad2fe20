"""One scenario in the making: its gates, texts, scripts, and the composition of the current lifetime."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

from actions import perform
from additions import StoreDouble
from doubles import Error, error_of, model_double, register_tool
from listeners import register_listener
from record import Recorder, describe_error, register_recorder

import turnwheel as tw

_DEFAULTS: dict[str, Any] = {
    "providers": [{"id": "mock"}],
    "prompt": {},
    "agents": [{}],
    "loop": {},
    **{
        key: []
        for key in ("sections", "contexts", "variables", "tools", "model", "on", "record", "needs", "eventTypes")
    },
}


class Gates:
    """The gates of a scenario. An open gate stays open, also for later lifetimes."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._holders: list[tuple[str, asyncio.Future[None]]] = []

    def open(self, gate: str) -> None:
        self._open.add(gate)
        for held, holder in list(self._holders):
            if held == gate and not holder.done():
                holder.set_result(None)

    @property
    def held(self) -> list[str]:
        return sorted({gate for gate, holder in self._holders if not holder.done()})

    def forget_holders(self) -> None:
        """Ends what is held: its lifetime is over."""
        for _, holder in self._holders:
            holder.cancel()
        self._holders.clear()

    async def hold(self, gate: str, signal: tw.Signal, on_abort: str) -> None:
        """Holds until the gate opens, or until the signal fires when that ends the hold."""
        if gate in self._open:
            return
        holder: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (gate, holder)

        def aborted(*_: object) -> None:
            if holder.done():
                return
            if on_abort == "fail":
                holder.set_exception(Error(f"aborted at gate {gate}"))
            else:
                holder.set_result(None)

        fired = None
        if on_abort != "ignore":
            fired = signal.wait()
            fired.add_done_callback(aborted)
        self._holders.append(entry)
        try:
            await _despite_cancellation(holder)
        finally:
            if entry in self._holders:
                self._holders.remove(entry)
            if fired is not None:
                fired.cancel()


async def _despite_cancellation(holder: asyncio.Future[None]) -> None:
    """Asyncio cancels a task when its turn is: a double looks at its signal only, as those of other hosts."""
    while not holder.done():
        try:
            await asyncio.shield(holder)
        except asyncio.CancelledError:
            continue
        except Error:
            break
    holder.result()


class World:
    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario = {**_DEFAULTS, **scenario}
        scenario["agents"] = [{"id": "a1", **agent} for agent in scenario["agents"]]
        self.default_agent: str = scenario["agents"][0]["id"] if scenario["agents"] else "a1"
        self.gates = Gates()
        self.errors: list[dict[str, Any]] = []
        self.settled: dict[str, Any] = {}
        self.problems: list[str] = []
        self.tasks: list[asyncio.Future[Any]] = []
        # Operations that are waited for, by name.
        self.operations: dict[str, asyncio.Future[Any]] = {}
        self.store = StoreDouble()
        self.tools = list(scenario["tools"])
        self.selections: dict[str, tw.ModelSelection] = {}
        self.tool_registrations: dict[str, tw.Registration] = {}
        # How many more events of a type are refused before they are committed.
        self.refusals: dict[str, int] = {}
        self.lifetime = 0
        self.ctx = tw.Context()
        model = scenario["model"]
        scripts = {self.default_agent: model} if isinstance(model, list) else model
        self._scripts: dict[str, list[Any]] = copy.deepcopy(scripts)
        self._counters = [0] * len(scenario["on"])
        self.recorder = Recorder(self)
        kinds = (("section", "sections"), ("context", "contexts"), ("variable", "variables"))
        self.texts: dict[tuple[str, str, str | None], str | None] = {
            (kind, spec["name"], spec.get("agent")): spec.get("text") for kind, key in kinds for spec in scenario[key]
        }

    def begin_lifetime(self) -> None:
        """A fresh composition."""
        self.lifetime += 1
        self.tool_registrations.clear()
        scenario, loop = self.scenario, self.scenario["loop"]
        options: dict[str, Any] = {"turn_budget": {"steps": None}}
        if "maxParallelToolCalls" in loop:
            options["max_parallel_tool_calls"] = loop["maxParallelToolCalls"]
        if "turnBudget" in loop:
            names = {"steps": "steps", "toolCalls": "tool_calls", "tokens": "tokens", "wallMs": "wall_ms"}
            options["turn_budget"] = {"steps": None} | {names[key]: limit for key, limit in loop["turnBudget"].items()}
        else:
            del options["turn_budget"]
        if "maxToolResultBytes" in loop:
            options["max_tool_result_bytes"] = loop["maxToolResultBytes"]
        if "turnTimeoutMs" in loop:
            options["turn_timeout"] = loop["turnTimeoutMs"] / 1000
        if "store" in scenario["needs"]:
            options |= {"store": self.store, "durability": loop.get("durability", "effects")}
        self.ctx = ctx = tw.Context(**options)
        for provider in scenario["providers"]:
            models = {name: _known(info) for name, info in provider.get("models", {}).items()}
            ctx.llm.register(provider["id"], model_double(self), models=models)
        register_recorder(self, ctx)
        prompt = scenario["prompt"]
        if prompt.get("identity"):
            ctx.identity()
        if prompt.get("persona"):
            ctx.persona(prompt["persona"])
        if prompt.get("runtimeContext") is False:
            ctx.suppress_contexts()
        if "toolOrder" in prompt:
            ctx.set_tool_order(prompt["toolOrder"])
        self._register_inputs(ctx, None)
        self._register_additions(ctx)
        for event_type in scenario["eventTypes"]:
            ctx.register_event_type(event_type["type"], event_type["version"])
        for index, listener in enumerate(scenario["on"]):
            if listener.get("scope") != "agent":
                register_listener(self, ctx, index)

    def _register_additions(self, ctx: tw.Context) -> None:
        """What the actions of section 13 need."""
        if "event-checks" in self.scenario["needs"]:

            def check(event: tw.Event) -> None:
                left = self.refusals.get(event.type, 0)
                if left:
                    self.refusals[event.type] = left - 1
                    raise Error(f"{event.type} is refused")

            ctx.check_events(check)
        if "config" in self.scenario["needs"]:

            def failed(notice: tw.Notice) -> None:
                self.failed(f"start {notice.session_id}", notice.error)

            ctx.on("agent-loop/config-start-failed", failed)

    def next_lifetime(self) -> None:
        """Abandons the lifetime and composes the next one."""
        self.recorder.freeze()
        self.ctx.abandon()
        self.gates.forget_holders()
        self.operations.clear()
        self.begin_lifetime()

    def _register_inputs(self, to: Any, agent: str | None) -> None:
        def own(key: str) -> list[dict[str, Any]]:
            return [spec for spec in self.scenario[key] if spec.get("agent") == agent]

        def text(kind: str, spec: dict[str, Any]) -> Callable[[Any], str | None]:
            key = (kind, spec["name"], spec.get("agent"))
            return lambda _: self.texts[key]

        for spec in own("sections"):
            order, complete = spec.get("order", 0), spec.get("complete", False)
            to.section(spec["name"], text("section", spec), order=order, complete=complete)
        for spec in own("contexts"):
            to.context(spec["name"], text("context", spec), order=spec.get("order", 0))
        for spec in own("variables"):
            to.variable(spec["name"], text("variable", spec))
        for spec in own("tools"):
            self.register_tool(to, spec)

    def register_tool(self, to: Any, spec: dict[str, Any]) -> None:
        self.tool_registrations[spec["name"]] = register_tool(self, to, spec)

    def _set_up(self, scope: tw.AgentScope, spec: dict[str, Any]) -> None:
        """An agent's own registrations, in the order of section 3.2."""
        if "select" in spec:
            selection = self.selections.setdefault(spec["id"], tw.ModelSelection(**choice(spec["select"])))
            selection.install(scope)
        self._register_inputs(scope, spec["id"])
        for index, listener in enumerate(self.scenario["on"]):
            if listener.get("scope") == "agent" and listener.get("agent", self.default_agent) == spec["id"]:
                register_listener(self, scope, index)
        if "setup" in spec:
            raise error_of(spec["setup"]["throw"])

    def open(
        self,
        spec: dict[str, Any],
        *,
        options: dict[str, Any] | None = None,
        seed: Any = None,
        log: Any = None,
        fork: dict[str, Any] | None = None,
    ) -> tw.Opening:
        """Creates an agent, or resumes it from `log`."""
        owner: Any = self.agent(spec["owner"]) if "owner" in spec else self.ctx
        route = options if options is not None else spec.get("options", {"provider": "mock", "model": "m1"})
        members: dict[str, Any] = {"provider": route.get("provider"), "model": route.get("model")}
        members |= {"max_tokens": route.get("maxTokens"), "setup": lambda scope: self._set_up(scope, spec)}
        if log is None:
            members |= {"cwd": spec.get("cwd"), "parent_session": spec.get("parentSession")}
            members |= {"seed_length": spec.get("seedLength"), "delegation_depth": spec.get("delegationDepth")}
            members |= {"mode": "create", "seed": seed, "fork": fork}
        else:
            members |= {"mode": "resume", "log": log}
        opening: tw.Opening = owner.agent(spec["id"], **members)
        return opening

    def open_declared(self, spec: dict[str, Any]) -> tw.Opening:
        """Creates a declared agent, or resumes it from its declared log."""
        log = None
        if "stored" in spec:
            stored = spec["stored"]
            header = {"version": 0, "id": spec["id"], "createdAt": 1, **stored.get("header", {})}
            log = {"header": header, "events": _events(stored["events"])}
        return self.open(spec, seed=_events(spec["seed"]) if "seed" in spec else None, log=log)

    def agent(self, agent_id: str) -> tw.Agent:
        """An agent of this lifetime, live or disposed."""
        agent = self.ctx.agents.get(agent_id)
        record = self.recorder.records.get(agent_id)
        if agent is None and record is not None and record.lifetime == self.lifetime:
            agent = record.agent
        if agent is None:
            raise Error(f"there is no agent {agent_id}")
        return agent

    def declared(self, agent_id: str) -> dict[str, Any] | None:
        return next((agent for agent in self.scenario["agents"] if agent["id"] == agent_id), None)

    def next_response(self, agent_id: str | None) -> Any:
        script = self._scripts.get(agent_id or "")
        return script.pop(0) if script else None

    @property
    def left_responses(self) -> int:
        return sum(map(len, self._scripts.values()))

    def count(self, index: int) -> int:
        """Counts a matching dispatch of a listener; the first is 1."""
        self._counters[index] += 1
        return self._counters[index]

    def records(self, what: str) -> bool:
        return what in self.scenario["record"]

    def failed(self, where: str, error: BaseException) -> None:
        described = {"where": where, **describe_error(error)}
        if error.__cause__ is not None:
            described["cause"] = str(error.__cause__)
        self.errors.append(described)

    def perform_batch(self, actions: list[Any] | None, place: str) -> None:
        for index, action in enumerate(actions or []):
            perform(self, action, f"{place}[{index}]")

    def watch(self, name: str, operation: Awaitable[Any]) -> None:
        """Notes how an operation ends."""

        async def wait() -> None:
            try:
                await operation
                self.settled[name] = "ok"
            except Exception as error:
                self.settled[name] = f"failed: {error}"

        self.tasks.append(asyncio.ensure_future(wait()))


def _known(info: dict[str, Any]) -> dict[str, Any]:
    names = {
        "contextWindow": "context_window",
        "maxTokens": "default_max_tokens",
        "efforts": "efforts",
        "effort": "default_effort",
    }
    return {names[key]: value for key, value in info.items()}


def choice(declared: dict[str, Any] | None) -> dict[str, Any]:
    """A model choice, as `ModelSelection` takes it; none without a provider."""
    declared = declared or {}
    if declared.get("provider") is None:
        return {}
    members = {"provider": declared["provider"], "model": declared.get("model", "")}
    return {**members, "reasoning_effort": declared.get("reasoningEffort")}


def _events(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events in the short form of section 3.2."""
    surface = ("user/message", "assistant/message", "tool/result")
    return [
        {"seq": seq, "time": 1, **({"surfaceOp": "append"} if event["type"] in surface else {}), **event}
        for seq, event in enumerate(listed)
    ]

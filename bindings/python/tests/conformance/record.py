"""The runner's own recorder: the outermost listener of everything, and what the doubles were asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import turnwheel as tw

if TYPE_CHECKING:
    from world import World

Notes = dict[str, Any]


def describe_error(error: BaseException) -> Notes:
    """Message, and code where the error has one of its own: a plain error of host code has none."""
    failure = getattr(error, "failure", None) or {}
    code = failure.get("code") or getattr(error, "code", None)
    described = {"message": str(error)}
    return described if code in (None, "HOST_ERROR") else {**described, "code": code}


def pending(agent: tw.Agent) -> dict[str, list[str]]:
    """The pending ids."""
    inbox = agent.inbox
    return {"nextTurn": _ids(inbox.next_turn), "nextStep": _ids(inbox.next_step)}


def _ids(messages: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in messages]


class Life:
    """An agent of a lifetime, whose state can still be read when its context is gone."""

    def __init__(self, agent: tw.Agent) -> None:
        self.agent = agent
        self._frozen: Notes | None = None

    def _read(self) -> Notes:
        session = self.agent.session
        work = session.consumed_work
        return {
            "status": self.agent.status,
            "events": [json.loads(event.json) for event in session.events()],
            "header": session.header,
            "history": session.history,
            "work": {"end": work.end, "droppedUnrun": work.dropped_unrun},
            "pending": pending(self.agent),
        }

    @property
    def state(self) -> Notes:
        return self._frozen or self._read()

    def freeze(self) -> None:
        self._frozen = self.state


@dataclass
class Record:
    """What happened to an agent that a notification named."""

    id: str
    lifetime: int
    lives: list[Life]
    notices: list[Notes] = field(default_factory=list)
    requests: list[Notes] = field(default_factory=list)
    runs: list[Notes] = field(default_factory=list)

    @property
    def agent(self) -> tw.Agent:
        return self.lives[-1].agent


class Recorder:
    def __init__(self, world: World) -> None:
        self._world = world
        self.records: dict[str, Record] = {}

    def record(self, agent: tw.Agent) -> Record:
        record = self.records.get(agent.id)
        if record is None:
            record = self.records[agent.id] = Record(agent.id, self._world.lifetime, [Life(agent)])
        if record.agent is not agent:
            record.lifetime = self._world.lifetime
            record.lives.append(Life(agent))
        return record

    def agent(self, agent_id: str | None) -> tw.Agent | None:
        """The latest agent of an id."""
        record = self.records.get(agent_id or "")
        return record.agent if record is not None else None

    def freeze(self) -> None:
        """Keeps the logs of a lifetime that is about to end."""
        for record in self.records.values():
            for life in record.lives:
                life.freeze()

    def push(self, agent: tw.Agent, notice: Notes) -> Notes:
        notice["at"] = len(agent.session)
        if self._world.records("inbox") and notice.get("event", "").startswith("agent/inbox/"):
            notice["pending"] = pending(agent)
        self.record(agent).notices.append(notice)
        return notice

    def hit(self, agent_id: str | None, listener: str, event: str) -> None:
        """A named listener was reached."""
        agent = self.agent(agent_id)
        if agent is not None:
            self.push(agent, {"listener": listener, "event": event})

    def request(self, request: tw.ModelRequest) -> None:
        """A request reached the adapter."""
        agent = self.agent(request.session_id)
        if agent is None:
            self._world.problems.append("a request of an unknown agent")
            return
        record = self.record(agent)
        made: Notes = {"life": record.lives[-1], "config": request.config, "messages": request.messages}
        made |= {"system": request.system, "tools": request.tools, "initiator": self._initiator()}
        record.requests.append(made)

    def run(self, call: tw.ToolCall) -> None:
        """A tool body started."""
        run = {"callId": call.call_id, "name": call.name, "arguments": call.arguments}
        initiator = self._initiator()
        if self._world.records("initiator") and initiator is not None:
            run["initiator"] = initiator
        self.record(call.agent).runs.append(run)

    def _initiator(self) -> str | None:
        initiator = self._world.ctx.current_initiator()
        return initiator.id if initiator is not None else None


_NOTICES: dict[str, Callable[[Any], Notes]] = {
    "agent/created": lambda _: {},
    "agent/disposed": lambda _: {},
    "agent/session-start": lambda notice: {"source": notice.source},
    "agent/status": lambda notice: {"status": notice.status},
    "agent/inbox/inserted": lambda notice: {"id": notice.message["id"]},
    "agent/inbox/discarded": lambda notice: {"id": notice.message["id"]},
    "agent/inbox/claimed": lambda notice: {"id": notice.message["id"], "turn": notice.turn},
    "agent/error": lambda notice: {
        "turn": notice.turn,
        "step": notice.step,
        "error": describe_error(notice.error),
    },
}

_OFFERS: dict[str, Callable[[Any], Notes]] = {
    "agent/pre-step": lambda payload: {"messages": _ids(payload.messages)},
    "agent/request": lambda _: {},
    "agent/request-error": lambda payload: {"provider": payload.provider, "failure": payload.failure},
}


def _result(event: str, decision: Any) -> Any:
    if event == "agent/pre-step" and decision["kind"] == "enter":
        return {"kind": "enter", "messages": _ids(decision["messages"])}
    return decision


def register_recorder(world: World, ctx: tw.Context) -> None:
    """Registers the recorder: first, so that it is outermost."""
    lifetime = world.lifetime

    def push(agent: tw.Agent, notice: Notes) -> Notes:
        return world.recorder.push(agent, notice) if world.lifetime == lifetime else notice

    def register(event: str) -> None:
        ctx.on(event, lambda notice: push(notice.agent, {"event": event, **_NOTICES[event](notice)}) and None)

    def register_waterfall(event: str) -> None:
        async def observe(payload: Any, next: tw.Next) -> Any:
            place = {"event": event, "turn": payload.turn, "step": payload.step}
            notice = push(payload.agent, {**place, **_OFFERS[event](payload)})
            try:
                decision = await next()
            except BaseException as error:
                # What is abandoned with its lifetime is still waiting, as far as anybody observed.
                if world.lifetime == lifetime:
                    notice["threw"] = str(error)
                raise
            notice["result"] = _result(event, decision)
            return decision

        ctx.on(event, observe)

    for event in _NOTICES:
        register(event)
    if world.records("inbox"):

        def splice(event: tw.Event) -> None:
            agent = ctx.agents.get(event.session_id)
            if agent is not None:
                push(agent, {"event": "session/event", "type": event.type, "pending": pending(agent)})

        ctx.on("session/event", splice, types=["agent/inbox/spliced"])
    for event in _OFFERS:
        register_waterfall(event)

    def stopping(payload: tw.TurnStopping) -> None:
        push(payload.agent, {"event": "agent/turn-stopping", "turn": payload.turn})

    ctx.on("agent/turn-stopping", stopping)

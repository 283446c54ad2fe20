"""Runs a scenario and describes what happened in the layout of `expect` (SCENARIO.md section 8)."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from actions import Done, begun, perform, resume
from additions import elapse
from doubles import Error
from record import Record
from world import World

import turnwheel as tw

# Everything is scripted and in memory: after so many turns of the loop nothing can proceed any more.
_TURNS = 60
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_KEYS = (
    "TOOL_ABORTED_BEFORE_DISPATCH",
    "TOOL_ABORTED",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "UNKNOWN_TOOL",
    "INVALID_ARGS",
    "CONTEXT_SNAPSHOT",
    "CONTEXT_CLEARED",
    "HARNESS_IDENTITY",
)


async def settle() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def run_scenario(scenario: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The result, and what went wrong with the run itself."""
    world = World(scenario)
    world.begin_lifetime()
    marks = []
    for spec in world.scenario["agents"]:
        if spec.get("create") is not False:
            opening = begun(_opened(world, spec))
            await settle()
            await opening
    marks.append(_mark(world, Done()))
    for index, action in enumerate(world.scenario["steps"]):
        place = f"step {index}"
        try:
            done = Done()
            if action["act"] == "resume":
                done = await resume(world, action, settle)
            elif action["act"] == "elapse":
                await elapse(world, action)
            else:
                done = perform(world, action, place)
        except Exception as error:
            world.failed(place, error)
            done = Done(failed=True)
        await settle()
        operation = done.operation
        if operation is not None:
            late = Error("the operation did not settle within its step")
            failure = operation.exception() if operation.done() else late
            if failure is not None:
                world.failed(place, failure)
                done.failed = True
        marks.append(_mark(world, done))
    result = _describe(world, marks)
    world.ctx.abandon()
    world.gates.forget_holders()
    for task in world.tasks:
        task.cancel()
    problems = list(world.problems)
    if world.left_responses:
        problems.append(f"{world.left_responses} scripted responses were not asked for")
    return json.loads(json.dumps(result)), problems


async def _opened(world: World, spec: dict[str, Any]) -> None:
    try:
        await world.open_declared(spec)
    except Exception as error:
        world.failed(f"create {spec['id']}", error)


def _mark(world: World, done: Done) -> dict[str, Any]:
    agents = {}
    for record in world.recorder.records.values():
        state = record.lives[-1].state
        counts = {"log": len(state["events"]), "notices": len(record.notices), "requests": len(record.requests)}
        agents[record.id] = {**counts, "status": state["status"]}
    mark: dict[str, Any] = {"agents": agents}
    if world.gates.held:
        mark["blocked"] = world.gates.held
    if world.settled:
        mark["settled"] = dict(world.settled)
        world.settled.clear()
    if done.returned is not None:
        mark["returned"] = done.returned
    if done.failed:
        mark["failed"] = True
    return mark


def _describe(world: World, steps: list[dict[str, Any]]) -> dict[str, Any]:
    agents = {record.id: _describe_agent(world, record) for record in world.recorder.records.values()}
    live = [agent.id for agent in world.ctx.agents]
    return {"live": live, "agents": agents, "errors": world.errors, "steps": steps}


def _describe_agent(world: World, record: Record) -> dict[str, Any]:
    state = record.lives[-1].state
    names = Names(world, record)
    carriers = Carriers(names, state["events"])
    log = [{key: value for key, value in event.items() if key not in ("seq", "time")} for event in state["events"]]
    described = {
        "status": state["status"],
        "header": {key: value for key, value in state["header"].items() if key != "createdAt"},
        "pending": names.clean(state["pending"]),
        "work": state["work"],
        "history": [carriers.reference(message) for message in state["history"]],
        "log": names.clean(log),
        "notices": names.clean(record.notices),
        "requests": [_describe_request(world, names, request) for request in record.requests],
    }
    if record.runs:
        described["tools"] = record.runs
    return described


def _describe_request(world: World, names: Names, request: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    if world.records("initiator") and request["initiator"] is not None:
        described["initiator"] = request["initiator"]
    described["config"] = request["config"]
    if request["system"] is not None:
        described["system"] = request["system"]
    plain = {"type": "object", "properties": {}}
    declared = [
        {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool.get("parameters", plain)}
        for tool in world.tools
    ]
    if request["tools"]:
        described["tools"] = [tool["name"] if tool in declared else tool for tool in request["tools"]]
    clean: dict[str, Any] = names.clean(described)
    carriers = Carriers(names, request["life"].state["events"])
    clean["messages"] = [carriers.reference(message) for message in request["messages"]]
    return clean


def _carried(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that an event carries."""
    data = event["data"]
    match event["type"]:
        case "agent/inbox/spliced":
            return list(data.get("inserted", []))
        case "user/message":
            return [data]
        case "assistant/message" | "tool/result":
            return [data["message"]]
    return []


class Names:
    """What generated message ids are called: ids that the scenario's file does not have."""

    def __init__(self, world: World, record: Record) -> None:
        text = json.dumps(world.scenario)
        self._names: dict[str, str] = {}
        for life in reversed(record.lives):
            for event in life.state["events"]:
                for message in _carried(event):
                    if re.match("[0-9a-f]{8}-", message["id"]) and message["id"] not in text:
                        self._names.setdefault(message["id"], f"@{event['seq']}")

    def clean(self, value: Any) -> Any:
        """Replaces generated ids and the implementation's own texts."""
        if isinstance(value, str):
            return self._names.get(value) or ("@?" if _UUID.fullmatch(value) else _resolved(value))
        if isinstance(value, list):
            return [self.clean(item) for item in value]
        if isinstance(value, dict):
            return {key: self.clean(member) for key, member in value.items()}
        return value


def _resolved(text: str) -> str:
    key = next((key for key in _KEYS if text.startswith(tw.TEXTS[key])), None)
    return text if key is None else f"$text:{key}{text[len(tw.TEXTS[key]) :]}"


class Carriers:
    """The first message of each id in a log."""

    def __init__(self, names: Names, events: list[dict[str, Any]]) -> None:
        self._names = names
        self._first: dict[str, Any] = {}
        for event in events:
            for message in _carried(event):
                self._first.setdefault(message["id"], names.clean(message))

    def reference(self, message: dict[str, Any]) -> Any:
        """The id of a message that the log carries unchanged, or the message."""
        full = self._names.clean(message)
        return full["id"] if self._first.get(message["id"]) == full else full

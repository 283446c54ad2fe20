"""What a scenario can do to the system (SCENARIO.md section 7)."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from additions import ask, wait, withdraw
from doubles import Error, message

import turnwheel as tw

if TYPE_CHECKING:
    from world import World


@dataclass
class Done:
    """What an action gave: a value, or an operation that has to end within its step."""

    returned: Any = None
    operation: asyncio.Future[Any] | None = None
    failed: bool = False


def begun(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    """Starts a coroutine now and not at the loop's next turn, as an eager task of Python 3.12 does."""
    try:
        first = coroutine.send(None)
    except StopIteration as stop:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(stop.value)
        return done
    except Exception as error:
        done = asyncio.get_running_loop().create_future()
        done.set_exception(error)
        return done
    return asyncio.ensure_future(_rest(coroutine, first))


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, Any], yielded: Any) -> Generator[Any, Any, Any]:
    resume: Callable[[Any], Any]
    given: Any
    while True:
        try:
            given, resume = (yield yielded), coroutine.send
        except BaseException as error:
            given, resume = error, coroutine.throw
        try:
            yielded = resume(given)
        except StopIteration as stop:
            return stop.value


async def _awaited(opening: Awaitable[Any]) -> Any:
    return await opening


def perform(world: World, action: dict[str, Any], place: str) -> Done:
    """Performs one action; a failure is recorded under `place`."""
    if action["act"] == "batch":
        world.perform_batch(action["actions"], place)
        return Done()
    try:
        return _act(world, action, place) or Done()
    except Exception as error:
        world.failed(place, error)
        return Done(failed=True)


def _act(world: World, action: dict[str, Any], place: str) -> Done | None:
    agent_id = action.get("agent", world.default_agent)
    kind, target = action["act"], action.get("target")

    def agent() -> tw.Agent:
        return world.agent(agent_id)

    match kind:
        case "followup" | "steer" | "inject":
            getattr(agent(), kind)(message(action))
        case "send":
            agent().send(message(action), target or "next-turn", action.get("wakeup", True))
        case "cancel":
            agent().cancel(action.get("cause", "user"), keep_inbox=action.get("keepInbox", False))
        case "inbox-append":
            agent().inbox.append(action["target"], message(action))
        case "inbox-prepend":
            agent().inbox.prepend(action["target"], message(action))
        case "inbox-replace":
            return Done(agent().inbox.replace(action["replace"], message(action)))
        case "inbox-remove":
            return Done(agent().inbox.remove(action["remove"]))
        case "inbox-splice":
            inserted = [message(each) for each in action.get("insert", [])]
            inbox = agent().inbox
            removed = inbox.splice(action["target"], action.get("start", 0), action.get("deleteCount", 0), *inserted)
            return Done([each["id"] for each in removed])
        case "inbox-clear":
            agent().inbox.clear()
        case "open":
            world.gates.open(action["gate"])
        case "when-idle":
            world.watch(action["name"], begun(agent().when_idle()))
        case "maintenance":
            return _maintenance(world, action, agent(), place)
        case "refuse":
            world.refusals[action["type"]] = action.get("count", 1)
        case "start":
            listed = [{"id": id, "sessionId": id, "provider": "mock", "model": "m1"} for id in action["agents"]]
            world.ctx.start_agents(listed)
        case "wait-for":
            pass
        case "wake":
            agent().wake()
        case "ask":
            ask(world, action, agent())
        case "settled" | "durable" | "run":
            wait(world, action, agent(), begun)
        case "withdraw":
            withdraw(world, action)
        case "store":
            world.store.refuses = action["refuses"]
        case "set":
            kind = next(kind for kind in ("section", "context", "variable") if kind in action)
            world.texts[kind, action[kind], action.get("agent")] = action.get("text")
        case "select":
            from world import choice

            world.selections[agent_id].select(**choice(action))
        case "tool-add":
            world.register_tool(world.ctx, action["tool"])
            world.tools.append(action["tool"])
        case "tool-remove":
            world.tool_registrations[action.get("name") or action["tool"]].dispose()
        case "emit":
            _emit(agent(), action)
        case "session-append":
            return Done(agent().session.append_raw(action["event"]))
        case "session-fork":
            session = world.ctx.fork_session(action["from"], action.get("at"), id=action.get("id"))
            header = session.header
            facts = {key: header.get(key) for key in ("seedLength", "parentSession")}
            return Done({**facts, "types": [event.type for event in session.events()]})
        case "create":
            declared = world.declared(agent_id)
            assert declared is not None, f"the scenario declares {agent_id}"
            return Done(operation=begun(_awaited(world.open_declared(declared))))
        case "fork":
            spec = world.declared(action["id"]) or {"id": action["id"]}
            world.agent(action["from"])
            fork: dict[str, Any] = {key: action[key] for key in ("from", "at") if key in action}
            return Done(operation=begun(_awaited(world.open(spec, options=action.get("options"), fork=fork))))
        case "dispose":
            world.watch(f"dispose {agent_id}", begun(agent().dispose()))
        case _:
            raise Error(f"the scenario is wrong: {kind} is no action here")
    return None


def _maintenance(world: World, action: dict[str, Any], agent: tw.Agent, place: str) -> Done:
    """A refusal is the action's failure; a failed task is the operation's."""

    def task(signal: tw.Signal) -> Awaitable[None]:
        # At once, as a plain function does: the body of an `async` one begins at the loop's next turn.
        world.perform_batch(action.get("actions"), f"maintenance {action['name']}")
        return rest(signal)

    async def rest(signal: tw.Signal) -> None:
        if "gate" in action:
            await world.gates.hold(action["gate"], signal, action.get("onAbort", "fail"))
        if "fail" in action:
            raise Error(action["fail"])

    running = begun(agent.run_maintenance(task))
    if running.done() and (refused := running.exception()) is not None:
        raise refused
    world.watch(action["name"], running)
    return Done()


def _emit(agent: tw.Agent, action: dict[str, Any]) -> None:
    payload = action.get("payload", {})
    members: dict[str, Any] = {"message": message({"id": payload.get("id", "emitted"), "text": "emitted"})}
    if "message" in payload:
        members["message"]["content"] = [{"type": "text", "text": payload["message"]}]
    members["error"] = {"message": payload.get("message", "emitted")}
    members |= {key: payload[key] for key in ("turn", "step", "status") if key in payload}
    agent.emit(action["event"], **members)


async def resume(world: World, action: dict[str, Any], settle: Callable[[], Awaitable[None]]) -> Done:
    """Starts the next lifetime with one agent of this one. A step only: it settles in between."""
    agent_id = action.get("agent", world.default_agent)
    agent = world.recorder.agent(agent_id)
    if agent is None:
        raise Error("there is no agent to resume")
    if action.get("mode") == "dispose":
        begun(agent.dispose())
        await settle()
    log = agent.session.to_dict()
    log["events"] = log["events"][: action.get("keep", len(log["events"]))]
    world.next_lifetime()
    mark = {"at": len(log["events"]), "event": "lifetime", "number": world.lifetime}
    world.recorder.records[agent_id].notices.append(mark)
    spec = world.declared(agent_id) or {"id": agent_id}
    return Done(operation=begun(_awaited(world.open(spec, options=action.get("options"), log=log))))

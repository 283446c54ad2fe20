"""Scenario listeners (SCENARIO.md section 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from doubles import Error, error_of, message

import turnwheel as tw

if TYPE_CHECKING:
    from world import World

Then = dict[str, Any]


def _facts(event: str, payload: Any) -> dict[str, Any]:
    """What a dispatch tells the filters of `when`."""
    if event == "session/event":
        data = payload.data if isinstance(payload.data, dict) else {}
        return {"agent": payload.session_id, "type": payload.type, "turn": data.get("turn"), "step": data.get("step")}
    given = (
        payload.data if isinstance(payload, tw.Notice) else {name: getattr(payload, name) for name in _names(payload)}
    )
    agent = payload.agent
    facts = {"agent": agent.id if agent is not None else None}
    if event.startswith("tools/"):
        return {**facts, "tool": given.get("name"), "callId": given.get("call_id")}
    facts |= {key: given.get(key) for key in ("turn", "step", "status", "source")}
    return {**facts, "id": (given.get("message") or {}).get("id")}


def _names(payload: Any) -> list[str]:
    return [name for kind in type(payload).__mro__ for name in getattr(kind, "__slots__", ())]


def _reach(world: World, index: int, payload: Any) -> Then | None:
    """Counts the dispatch and, if it matches, records it and performs its actions; gives what else it does."""
    listener = world.scenario["on"][index]
    when, then, name = listener.get("when", {}), listener.get("do", {}), listener.get("name")
    facts = _facts(listener["event"], payload)
    if any(facts.get(key) != wanted for key, wanted in when.items() if key != "nth"):
        return None
    reached = world.count(index)
    if when.get("nth", reached) != reached:
        return None
    if name is not None:
        world.recorder.hit(facts["agent"], name, listener["event"])
    world.perform_batch(then.get("actions"), f"listener {name or f'on[{index}]'}")
    return dict(then)


def register_listener(world: World, to: Any, index: int) -> None:
    """Registers the scenario's listener `index`."""
    listener = world.scenario["on"][index]
    event, lifetime = listener["event"], world.lifetime
    decide = WATERFALLS.get(event)
    if decide is None:

        def hear(payload: Any) -> None:
            then = _reach(world, index, payload) if world.lifetime == lifetime else None
            if then is not None and "throw" in then:
                raise error_of(then["throw"])

        to.on(event, hear)
        return

    async def take_part(payload: Any, *rest: Any) -> Any:
        next = rest[0] if rest else None
        then = _reach(world, index, payload) if world.lifetime == lifetime else None
        if then is None:
            return await next() if next is not None else None
        if "gate" in then:
            await world.gates.hold(then["gate"], payload.signal, then.get("onAbort", "ignore"))
        if "throw" in then:
            raise error_of(then["throw"])
        twice = _twice(world, index, next) if then.get("nextTwice") else next
        return await decide(then, payload, twice)

    if event == "agent/turn-stopping":

        async def stopping(payload: Any) -> Any:
            return await take_part(payload)

        to.on(event, stopping)
    else:
        to.on(event, take_part)


def _twice(world: World, index: int, next: Any) -> Callable[[], Any]:
    """Delegates a second time as well, whose failure is recorded."""

    async def delegate() -> Any:
        answer = await next()
        try:
            await next()
        except Exception as error:
            name = world.scenario["on"][index].get("name", f"on[{index}]")
            world.failed(f"listener {name}", error)
        return answer

    return delegate


async def _pre_step(then: Then, payload: tw.PreStep, next: tw.Next) -> Any:
    if then.get("reject"):
        return {"kind": "reject"}
    if "enter" in then:
        offered = {each["id"]: each for each in payload.messages}
        messages = []
        for item in then["enter"]:
            if isinstance(item, str) and item not in offered:
                raise Error(f"message {item} was not offered")
            messages.append(offered[item] if isinstance(item, str) else message(item))
        return {"kind": "enter", "messages": messages}
    decision = await next()
    if decision["kind"] == "reject":
        return decision
    kept = [each for each in decision["messages"] if each["id"] not in then.get("drop", [])]
    before, after = ([message(each) for each in then.get(key, [])] for key in ("prepend", "append"))
    return {"kind": "enter", "messages": [*before, *kept, *after]}


async def _request(then: Then, _: tw.Request, next: tw.Next) -> Any:
    if "config" in then:
        return then["config"]
    config = {**await next(), **then.get("set", {})}
    for key in then.get("unset", []):
        config.pop(key, None)
    return {**config, **dict.fromkeys(then.get("undefined", []))}


async def _request_error(then: Then, _: tw.RequestError, next: tw.Next) -> Any:
    return "retry" if then.get("retry") else await next()


async def _assemble(_: Then, __: tw.Assemble, next: tw.Next) -> Any:
    return await next()


async def _pre_execute(then: Then, _: tw.PreExecute, next: tw.Next) -> Any:
    return {"kind": "deny", "reason": then["deny"]} if "deny" in then else await next()


async def _post_execute(then: Then, _: tw.PostExecute, next: tw.Next) -> Any:
    contexts = [message(each) for each in then.get("contexts", [])]
    if "block" in then:
        return {"kind": "block", "feedback": [{"type": "text", "text": then["block"]}], "contexts": contexts}
    if "content" in then:
        return {"kind": "accept", "content": [{"type": "text", "text": then["content"]}], "contexts": contexts}
    decision = await next()
    return {**decision, "contexts": [*(decision.get("contexts") or []), *contexts]}


async def _turn_stopping(then: Then, _: tw.TurnStopping, __: Any) -> Any:
    # A listener's answer means nothing (D-12).
    return then.get("return")


WATERFALLS: dict[str, Callable[..., Any]] = {
    "agent/pre-step": _pre_step,
    "agent/request": _request,
    "agent/request-error": _request_error,
    "system-prompt/assemble": _assemble,
    "tools/pre-execute": _pre_execute,
    "tools/post-execute": _post_execute,
    "agent/turn-stopping": _turn_stopping,
}

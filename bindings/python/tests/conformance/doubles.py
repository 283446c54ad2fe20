"""The model and tool doubles (SCENARIO.md sections 4 and 5), and what host code raises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import turnwheel as tw

if TYPE_CHECKING:
    from world import World


# What stands in a scenario for one lone surrogate of a host's string (D-22).
_LONE = "$lone-surrogate"


class Error(Exception):
    """An error of host code; scenarios know it by this name."""


class HarnessError(tw.TurnwheelError):
    """An error of host code with a code of its own."""


def with_surrogates(value: Any) -> Any:
    """A value in whose texts each placeholder has become a lone surrogate."""
    if isinstance(value, str):
        return value.replace(_LONE, "\ud800")
    if isinstance(value, list):
        return [with_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: with_surrogates(member) for key, member in value.items()}
    return value


def message(given: dict[str, Any]) -> dict[str, Any]:
    """A message in short form (section 3.1)."""
    text = [{"type": "text", "text": given.get("text", "")}]
    source = given.get("source") or {"kind": "user"}
    content = with_surrogates(given.get("content", text))
    return {"id": given["id"], "role": "user", "content": content, "source": source}


def error_of(facts: Any) -> Exception:
    """An error to raise (section 3.5)."""
    if isinstance(facts, str):
        return Error(facts)
    text = facts["message"]
    if facts.get("llm"):
        failure = {key: facts[key] for key in ("code", "status", "providerRetryAfterMs") if key in facts}
        return tw.ModelError(text, failure=failure)
    if "code" in facts:
        kind = type(facts.get("name", "HarnessError"), (HarnessError,), {})
        error: Exception = kind(text, code=facts["code"])
        return error
    return Error(text)


def model_double(world: World) -> tw.Adapter:
    """Plays the scripted responses of whichever agent asks."""
    lifetime = world.lifetime

    async def adapter(request: tw.ModelRequest) -> AsyncIterator[dict[str, Any]]:
        world.recorder.request(request)
        response = world.next_response(request.session_id)
        if response is None:
            if world.lifetime == lifetime:
                world.problems.append(f"the script of {request.session_id} has no response left")
            raise Error("the script has no response left")
        chunks, gates = with_surrogates(_expand(response)), response.get("gates", {})

        async def hold(position: int) -> None:
            if str(position) in gates:
                await world.gates.hold(gates[str(position)], request.signal, response.get("onAbort", "fail"))

        for position, chunk in enumerate(chunks):
            await hold(position)
            yield chunk
        await hold(len(chunks))
        if "throw" in response:
            raise error_of(response["throw"])

    return adapter


def _expand(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks that a response stands for."""
    if "chunks" in response:
        return list(response["chunks"])
    blocks: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for kind in ("reasoning", "text"):
        if kind in response:
            blocks.append((kind, {"text": response[kind]}, {"type": kind, "text": response[kind]}))
    calls = response.get("calls", [])
    for call in calls:
        known, given = {"id": call["id"], "name": call["name"]}, call.get("arguments", "{}")
        blocks.append(
            ("tool-call", {**known, "argumentsDelta": given}, {"type": "tool-call", **known, "arguments": given})
        )
    is_broken = any(key in response for key in ("error", "aborted", "throw"))
    chunks: list[dict[str, Any]] = []
    for index, (kind, members, block) in enumerate(blocks):
        chunks.append({"type": "block-start", "index": index, "blockType": kind})
        chunks.append({"type": f"{kind}-delta", "index": index, **members})
        if not (is_broken and index + 1 == len(blocks)):
            chunks.append({"type": "block-end", "index": index, "block": block})
    if "usage" in response:
        chunks.append({"type": "usage", "usage": response["usage"]})
    reason = _finish(response, calls)
    if reason is not None:
        replay = {"replayState": response["replayState"]} if "replayState" in response else {}
        chunks.append({"type": "finish", "reason": reason, **replay})
    return chunks


def _finish(response: dict[str, Any], calls: list[Any]) -> dict[str, Any] | None:
    if "throw" in response:
        return None
    for kind in ("error", "aborted"):
        if kind in response:
            return {"kind": kind, "failure": response[kind]}
    if "finish" in response and response["finish"] is None:
        return None
    return {"kind": response.get("finish", "tool-calls" if calls else "stop")}


def register_tool(world: World, to: Any, spec: dict[str, Any]) -> tw.Registration:
    """Registers the tool that a declaration stands for."""
    parallel = spec.get("parallel", False)
    if isinstance(parallel, dict):
        wanted = parallel

        def parallel(arguments: Any) -> bool:
            return isinstance(arguments, dict) and arguments.get(wanted["argument"]) == wanted["equals"]

    async def execute(call: tw.ToolCall) -> tw.ToolOutput:
        return await _run(world, spec, call)

    registration: tw.Registration = to.add_tool(
        execute,
        name=spec["name"],
        description=spec.get("description", ""),
        parameters=spec.get("parameters", {"type": "object", "properties": {}}),
        checked=spec.get("validate") is True,
        parallel=parallel,
        timeout=spec["timeoutMs"] / 1000 if "timeoutMs" in spec else None,
    )
    return registration


async def _run(world: World, spec: dict[str, Any], call: tw.ToolCall) -> tw.ToolOutput:
    own = {**spec, **spec.get("calls", {}).get(call.call_id, {})}
    world.recorder.run(call)
    world.perform_batch(own.get("actions"), f"tool {call.call_id}")
    aborted: Exception | None = None
    if "gate" in own:
        try:
            await world.gates.hold(own["gate"], call.signal, own.get("onAbort", "ignore"))
        except Error as error:
            aborted = error
    # Contexts and the mark come before an error, too.
    for context in own.get("contexts", []):
        call.defer_context(message(context))
    if own.get("concludesTurn"):
        call.conclude_turn()
    if aborted is not None:
        raise aborted
    given = own.get("result") or {}
    result: dict[str, Any] = {"text": given} if isinstance(given, str) else given
    if "error" in result:
        raise error_of(result["error"])
    content: list[dict[str, Any]] = result.get("content", [{"type": "text", "text": result.get("text", "")}])
    return tw.ToolOutput(content=with_surrogates(content), meta=own.get("meta"))

"""OpenAI Agents SDK for Python: a runner over a model of its own; the caller keeps the items."""

from __future__ import annotations

import itertools

import common
from agents import Agent, Model, RunConfig, Runner, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

ids = itertools.count()
# Made once: making it is the work of a provider's client, not of the loop.
DELTA = ResponseTextDeltaEvent.model_construct(
    type="response.output_text.delta", delta=common.DELTA, content_index=0, item_id="m", output_index=0,
    sequence_number=1, logprobs=[],
)  # fmt: skip


class Fake(Model):
    def __init__(self, workload: str) -> None:
        self.workload = workload

    async def get_response(self, *args, **named):
        raise NotImplementedError("only streaming is measured")

    async def stream_response(self, instructions, items, *args, **named):
        is_answered = isinstance(items, list) and items[-1].get("type") == "function_call_output"
        if self.workload == "w2" and not is_answered:
            arguments = '{"city":"Paris","units":"metric"}'
            output = ResponseFunctionToolCall(
                type="function_call", call_id=f"c-{next(ids)}", name="lookup", arguments=arguments
            )
        else:
            count = common.DELTAS[self.workload]
            for _ in range(count):
                yield DELTA
            text = ResponseOutputText(type="output_text", text=common.DELTA * count, annotations=[], logprobs=[])
            output = ResponseOutputMessage(
                type="message", id=f"m-{next(ids)}", role="assistant", status="completed", content=[text]
            )
        response = Response.model_construct(id=f"r-{next(ids)}", object="response", output=[output], usage=None)
        yield ResponseCompletedEvent.model_construct(type="response.completed", response=response, sequence_number=2)


@function_tool
async def lookup(city: str, units: str) -> str:
    """Looks the weather up."""
    return "sunny, 21C"


def session(workload: str) -> common.Turn:
    agent = Agent(name="bench", model=Fake(workload), tools=[lookup])
    items: list = []

    async def turn() -> None:
        nonlocal items
        items = [*items, {"role": "user", "content": common.PROMPT}]
        result = Runner.run_streamed(agent, items, run_config=RunConfig(tracing_disabled=True))
        async for _ in result.stream_events():
            pass
        items = result.to_input_list()

    return turn


common.main(session)

"""Many users behind FastAPI, each with an agent and a log of their own. Usage: chat_server.py [store] [port]

`POST /messages {"text", "id"?}` queues a prompt and answers when it is on disk: what was answered with 202 is not lost,
and sending the same id again changes nothing. `GET /events` streams the user's events as they are logged; their ids are
seqs, so a browser that lost its connection, or whose server was killed, goes on behind `Last-Event-ID` and misses
nothing. `POST /cancel` stops the running turn and goes on with what is queued."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

import turnwheel as tw

STORE = sys.argv[1] if len(sys.argv) > 1 else "sessions"
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
# Who may come in: a token for each user. A real service asks its identity provider here.
TOKENS: dict[str, str] = json.loads(os.environ.get("CHAT_TOKENS", '{"token-a": "alice", "token-b": "bob"}'))

ctx = tw.Context(store=STORE, turn_timeout=300)
ctx.section("role", "You are a friendly assistant. Answer briefly.")
opening: dict[str, asyncio.Task[tw.Agent]] = {}


def model() -> tw.OpenAIChat | tw.Scripted:
    if url := os.environ.get("TURNWHEEL_BASE_URL"):
        return tw.OpenAIChat(url, api_key=os.environ.get("TURNWHEEL_API_KEY"))
    return tw.Scripted(otherwise=tw.Reply("Every word of this comes on its own.", chunk_size=4, delay=0.02))


async def open_agent(user: str) -> tw.Agent:
    agent = await ctx.agent(f"chat-{user}", provider="llm", model=os.environ.get("TURNWHEEL_MODEL", "default"))
    agent.wake()  # what a killed server left in the queue
    return agent


async def agent_of(authorization: Annotated[str, Header()] = "") -> tw.Agent:
    """The agent of whoever asks; opened once, however many requests come at the same time."""
    user = TOKENS.get(authorization.removeprefix("Bearer "))
    if user is None:
        raise HTTPException(401, "send a known token: Authorization: Bearer ...")
    if user not in opening or (opening[user].done() and opening[user].exception() is not None):
        opening[user] = asyncio.create_task(open_agent(user))
    # One client that goes away must not take the opening from the others.
    return await asyncio.shield(opening[user])


UserAgent = Annotated[tw.Agent, Depends(agent_of)]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    ctx.llm.register("llm", model())
    yield
    # Turns under way may end; disposing then discards what nobody will run.
    if idle := [asyncio.create_task(agent.when_idle()) for agent in ctx.agents]:
        await asyncio.wait(idle, timeout=10)
    await ctx.close()


app = FastAPI(lifespan=lifespan)


class Prompt(BaseModel):
    text: str = Field(min_length=1, max_length=20_000)
    id: str | None = Field(default=None, min_length=1, max_length=100)


@app.post("/messages", status_code=202)
async def send(prompt: Prompt, agent: UserAgent) -> dict[str, str]:
    try:
        receipt = agent.followup({"content": prompt.text, **({"id": prompt.id} if prompt.id else {})})
    except tw.RegistryError as error:
        if error.code != "DUPLICATE_MESSAGE" or prompt.id is None:
            raise
        receipt = agent.receipt(prompt.id)  # a client that asks again because it heard no answer
    await receipt.durable()
    return {"id": receipt.message_id}


@app.get("/events")
async def events(agent: UserAgent, last_event_id: Annotated[int | None, Header()] = None) -> StreamingResponse:
    async def stream() -> AsyncIterator[str]:
        # A slow reader holds nothing up: what it has not read yet is in the log.
        async for event in agent.session.follow(0 if last_event_id is None else last_event_id + 1):
            yield f"id: {event.seq}\nevent: {event.type}\ndata: {json.dumps(event.data)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})


@app.post("/cancel", status_code=204)
async def cancel(agent: UserAgent) -> Response:
    agent.cancel(keep_inbox=True)
    agent.wake()
    return Response(status_code=204)


if __name__ == "__main__":
    # Streams of events never end by themselves, so a shutdown does not wait for them.
    uvicorn.run(app, host="127.0.0.1", port=PORT, timeout_graceful_shutdown=2)

"""turnwheel: an embeddable, durable agent runtime.

>>> import asyncio, turnwheel as tw
>>> ctx = tw.Context()
>>> ctx.llm.register("local", tw.Scripted("It is 5."))  # doctest: +ELLIPSIS
<...>
>>> async def main():
...     async with ctx.agent("demo", provider="local", model="any") as agent:
...         return (await agent.run("What is 2 + 3?")).text
>>> asyncio.run(main())
'It is 5.'
"""

import atexit as _atexit
import os as _os

from . import _turnwheel, sync, testing, view
from ._agent import Agent, AgentScope, ConsumedWork, EventStream, Inbox, Message, Receipt, RunResult, Session
from ._context import AgentOptions, Agents, Budget, Context, Opening, current_agent
from ._errors import (
    BugError,
    HostCodeError,
    LogError,
    ModelError,
    RegistryError,
    StateError,
    StoreError,
    ToolError,
    TurnwheelError,
    UsageError,
    WrongThreadError,
)
from ._models import Adapter, AnthropicMessages, ModelRequest, OpenAIChat, OpenAIResponses, Reply, Scripted
from ._payloads import (
    Assemble,
    Next,
    Notice,
    PostExecute,
    PreExecute,
    PreStep,
    Request,
    RequestError,
    TurnStopping,
)
from ._registrar import Models, ModelSelection, Registration, ToolOutput
from ._stores import Copied, Header, JsonlStore, RawLog, ReferenceDatabase, SessionWriter, SqliteStore, Store
from ._turnwheel import Event, Signal, ToolCall, schema_of_shorthand

__version__ = "0.1.0"

CODES: dict[str, int] = _turnwheel.codes()
"""Every error code, with its number."""

TEXTS: dict[str, str] = _turnwheel.texts()
"""The texts of the runtime's own that reach a model, by key; texts of yours may follow one."""

_os.register_at_fork(after_in_child=_turnwheel.after_fork_in_child)
_atexit.register(_turnwheel.shutdown)

__all__ = [
    "CODES",
    "TEXTS",
    "Adapter",
    "Agent",
    "AgentOptions",
    "AgentScope",
    "Agents",
    "AnthropicMessages",
    "Assemble",
    "Budget",
    "BugError",
    "ConsumedWork",
    "Context",
    "Copied",
    "Event",
    "EventStream",
    "Header",
    "HostCodeError",
    "Inbox",
    "JsonlStore",
    "LogError",
    "Message",
    "ModelError",
    "ModelRequest",
    "ModelSelection",
    "Models",
    "Next",
    "Notice",
    "OpenAIChat",
    "OpenAIResponses",
    "Opening",
    "PostExecute",
    "PreExecute",
    "PreStep",
    "RawLog",
    "Receipt",
    "ReferenceDatabase",
    "Registration",
    "RegistryError",
    "Reply",
    "Request",
    "RequestError",
    "RunResult",
    "Scripted",
    "Session",
    "SessionWriter",
    "Signal",
    "SqliteStore",
    "StateError",
    "Store",
    "StoreError",
    "ToolCall",
    "ToolError",
    "ToolOutput",
    "TurnStopping",
    "TurnwheelError",
    "UsageError",
    "WrongThreadError",
    "__version__",
    "current_agent",
    "schema_of_shorthand",
    "sync",
    "testing",
    "view",
]

"""pydantic-ai's interface for engines: each request of an agent and each call of its tools is an operation of the log.

`DivebookDurability` is a capability of an agent, given to it when it is made or for one run. Outside a turn of a
workflow it does nothing. The names that are recorded are ours (`tests/agents/test_pinned.py`): those of pydantic-ai
hold toolsets' ids and models' names, which people change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    BoundDurableOperation,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    ModelRequestId,
    ToolsetCallToolId,
    conversation_id_from_run_id,
    replay_scope,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, ToolsetTool, WrapperToolset

from divebook.agents.bound import BoundCall, BoundRequest, BoundStep, StreamedModel
from divebook.agents.deferred import deferred
from divebook.agents.guarded import GuardedToolset
from divebook.agents.present import CALL, INSIDE, TURN, WRITE, AgentTurn, present
from divebook.agents.requests import RequestRecord
from divebook.text.logs import logger

_log = logger(__name__)

ENGINE = "divebook"
"""Name of the engine, and the key of its metadata of tools."""


class Backend(DurableOperationBackend[Mapping[str, Any]]):
    """Binds operations, which get typed parameters and not what a hash is made of."""

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> BoundDurableOperation[Any, Any, Any]:
        """Return what carries out operations of a kind."""
        match operation.operation_id:
            case ModelRequestId():
                return BoundRequest(operation)
            case ToolsetCallToolId():
                return BoundCall(operation)
        return BoundStep(operation)

    def config_for_tool(
        self, operation: DurableOperation[Any, Any, Any], *, tool: object | None, tool_name: str
    ) -> Mapping[str, Any] | Literal[False]:
        """Return what is known of a tool; False for one that is no operation itself, only what it does inside."""
        del operation, tool_name
        metadata = (tool.tool_def.metadata or {}) if isinstance(tool, ToolsetTool) else {}
        own = metadata.get(ENGINE)
        if own is False:
            return False
        return own if isinstance(own, Mapping) else {}

    def registrations(self) -> Sequence[Callable[..., object]]:
        """Return nothing: no worker has to know its operations beforehand."""
        return ()


class DivebookDurability(BaseDurabilityCapability[Any]):
    """Records what an agent does while a step of a workflow runs it."""

    engine_spec = DurabilityEngineSpec(
        engine_name=ENGINE,
        durable_unit_noun="operation",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),  # else they would run unrecorded
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key=ENGINE,
    )

    @property
    def in_durable_context(self) -> bool:
        """Whether a turn is under way here."""
        return present() is not None

    def get_durable_operation_backend(self) -> Backend:
        """Return what binds operations."""
        return Backend()

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Stream a request if somebody listens; its operation and the result are the same either way."""
        return None if WRITE.get() is None else StreamedModel(model)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Put a guard around all tools."""
        return GuardedToolset(super().get_wrapper_toolset(toolset) or toolset)

    def _wrap_leaf_toolset(self, ts: AbstractToolset[Any]) -> WrapperToolset[Any] | None:
        """Refuse a toolset of which pydantic-ai makes no operations: its calls would be made again on replay."""
        wrapped = super()._wrap_leaf_toolset(ts)
        if wrapped is None and not isinstance(ts, ExternalToolset):  # what that offers is done by people, who are asked
            raise UserError(
                f"the calls of toolset {ts.id!r} would not be recorded, since {type(ts).__name__} is of no kind that "
                "pydantic-ai knows; offer its tools by a FunctionToolset with an id"
            )
        return wrapped

    # --- what would be another on replay ---------------------------------------------------------------------------

    def get_default_run_id(self) -> str | None:
        """Return an id that is the same whenever the turn runs again."""
        turn = present()
        return None if turn is None else turn.key(turn.context.run_id)

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return an id made of that of the run."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return when the execution began, which the log has anyway."""
        del run_id
        turn = present()
        return None if turn is None else turn.context.started_at

    # --- the run ---------------------------------------------------------------------------------------------------

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Give a run its places, and keep what is only replayed out of telemetry."""
        turn = present()
        if turn is None:
            self._warn_of_part()
            return await handler()
        token = TURN.set(self._own(turn, ctx))
        try:
            with replay_scope():
                return await super().wrap_run(ctx, handler=handler)
        finally:
            TURN.reset(token)

    def _own(self, turn: AgentTurn, ctx: RunContext[Any]) -> AgentTurn:
        """Return the turn whose run this is; that of an agent that a tool runs lies below the call of the tool."""
        if not turn.has_begun:
            turn.has_begun = True
            return turn
        call = CALL.get()
        context = turn.context.below(turn.key(f"run-of-{self.name}") if call is None else call.key)
        return AgentTurn(
            context, RequestRecord(self.name), ctx.model.model_id, turn.retry, turn.seconds, has_begun=True
        )

    def _warn_of_part(self) -> None:
        call = INSIDE.get()
        if call is not None:
            _log.warning(
                "agent %s runs inside %s, which is recorded as one thing: its requests are not recorded by themselves, "
                "not counted, and it can ask nobody; to have them recorded, give the tool metadata={'%s': False}",
                self.name,
                call,
                ENGINE,
            )

    # --- people ----------------------------------------------------------------------------------------------------

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Have people approve and answer what tools have put off, all asked before one of them is waited for."""
        del ctx
        turn = present()
        return None if turn is None else await deferred(turn, requests)

"""Content blocks of prompt steps. Dynamic blocks are evaluated as recorded operations."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from divebook.agents import Agent
from divebook.documents import DocumentRepository, Policy
from divebook.engine.operations import DYNAMIC_CONTENT
from divebook.errors import (
    SetupError,
    StepError,
)
from divebook.runtime.context import StepContext
from divebook.scripting import Interpreter
from divebook.steps.script_step import ScriptHost
from divebook.text.redaction import shared
from divebook.workflow.step import (
    Block,
    ContentEntry,
    blocks_from_program_output,
    blocks_from_script_result,
    text_block,
)

if TYPE_CHECKING:
    pass


PROGRAM_SECONDS = 60.0


class ContentBuilder:
    """Converter from content entries to blocks, used while a step runs."""

    def __init__(
        self, interpreter: Interpreter, documents: DocumentRepository, printer: Callable[[str], None], policy: Policy
    ) -> None:
        self._interpreter = interpreter
        self._documents = documents
        self._printer = printer
        self._policy = policy

    async def blocks(
        self, entries: Sequence[ContentEntry], context: StepContext, agent: str, prefix: str = ""
    ) -> list[Block]:
        """Return the blocks of all entries in order. A `prefix` precedes the keys of their operations."""
        blocks: list[Block] = []
        for number, entry in enumerate(entries, 1):
            blocks.extend(await self._blocks_of(entry, context, agent, f"{prefix}content-{number}" if prefix else None))
        return blocks

    def of_agent(self, context: StepContext, agent: Agent, prefix: str) -> Awaitable[list[Block]]:
        """Return the blocks of an agent's own context."""
        return self.blocks(agent.definition.context, context, agent.name, prefix)

    async def _blocks_of(self, entry: ContentEntry, context: StepContext, agent: str, key: str | None) -> list[Block]:
        if entry.blocks is not None:
            return [dict(block) for block in entry.blocks]
        if entry.text is not None:
            return [text_block(entry.text.strip())]
        if entry.document is not None:
            return [text_block(self._documents.get(entry.document).content)]
        if entry.dynamic is not None:
            return await self._from_script(entry.dynamic, context, agent, key)
        if entry.dynamic_from is not None:
            return await self._from_program(entry.dynamic_from, context, agent, key)
        raise SetupError(
            f"content {entry.source} {getattr(entry, entry.source)!r} of step {context.step.name!r} was not loaded; "
            "read the definition with divebook.load or in a %%dive cell"
        )

    async def _from_script(self, script: str, context: StepContext, agent: str, key: str | None) -> list[Block]:
        names = {**context.names, "workflow": context.workflow.name, "step": context.step.name, "agent": agent}
        host = ScriptHost(context, self._documents, self._printer)

        async def call() -> list[Block]:
            result = await anyio.to_thread.run_sync(self._interpreter.run_script, script, names, host)
            return blocks_from_script_result(result)

        recorded: list[Block] = await context.operation(
            DYNAMIC_CONTENT, {"script": script}, call, repeatable=True, key=key
        )
        return recorded

    async def _from_program(self, program: str, context: StepContext, agent: str, key: str | None) -> list[Block]:
        variables = {
            "inputs": dict(context.inputs),
            "state": dict(context.variables),
            "workflow": context.workflow.name,
            "step": context.step.name,
            "agent": agent,
        }

        async def call() -> list[Block]:
            self._policy.program(program)
            return await anyio.to_thread.run_sync(run_program, program, variables)

        recorded: list[Block] = await context.operation(
            DYNAMIC_CONTENT, {"program": program}, call, repeatable=True, key=key
        )
        return recorded


def run_program(program: str, variables: dict[str, Any]) -> list[Block]:
    """Run a program that prints a JSON list of content blocks.

    Parameters
    ----------
    program
        Path of an executable file.
    variables
        What it finds as JSON in the process variable ``DIVE_GLOBALS``.

    Raises
    ------
    StepError
        The file does not exist, or the program fails, takes more than a minute, or prints something else.
    """
    if not Path(program).is_file():
        raise StepError(f"script file not found: {program}")
    environ = {**os.environ, "DIVE_GLOBALS": json.dumps(variables, default=str)}
    try:
        process = subprocess.run(
            [str(Path(program).resolve())], env=environ, capture_output=True, check=True, timeout=PROGRAM_SECONDS
        )
        return blocks_from_program_output(process.stdout.decode())
    except subprocess.CalledProcessError as error:
        output = shared().text(error.stderr.decode(errors="replace").strip())[-500:]
        raise StepError(f"script execution failed: {program} ended with code {error.returncode}: {output}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(f"script execution failed: {error}") from error
    except UnicodeDecodeError as error:
        raise StepError(f"failed to parse script JSON output of {program}: {error}") from error

"""Clients of the server: of this protocol and of the one before, with a person whose answers are known."""

import asyncio

from mcp.client import Client
from mcp.types import ElicitResult

from divebook.serve import WorkflowServer

MODERN, LEGACY = "auto", "legacy"


def accepting(*answers):
    """Return what a client's person answers, one after the other, and what that person was asked."""
    left, asked = list(answers), []

    async def elicited(context, params):
        asked.append(params)
        answer = left.pop(0)
        return ElicitResult(action="decline") if answer is None else ElicitResult(action="accept", content=answer)

    return elicited, asked


def talk(here, talking, *, mode=MODERN, elicited=None, wait=20.0):
    """Let a client talk to a server of an environment."""

    async def connected():
        server = WorkflowServer(here, wait=wait).protocol
        async with Client(server, mode=mode, elicitation_callback=elicited) as client:
            return await talking(client)

    return asyncio.run(connected())


def called(here, tool, arguments=None, **how):
    return talk(here, lambda client: client.call_tool(tool, arguments or {}), **how)

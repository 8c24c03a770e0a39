import asyncio
import sys
from pathlib import Path

import pytest

from divebook.definitions.servers import MCPServerDefinition
from divebook.documents import Policy
from divebook.tools.mcp.servers import Server
from tests.blocked_replay import noted_environments, pytest_runtest_call

__all__ = ["noted_environments", "pytest_runtest_call"]

SERVERS = Path(__file__).parent / "servers"


def defined(program, *args, name="s", **more):
    """Return the definition of one of the servers of the tests."""
    return MCPServerDefinition(name, "stdio", command=sys.executable, args=(str(SERVERS / program), *args), **more)


def on_loop(work):
    """Run what is asked of a server that belongs to no environment, from a thread that has no loop."""
    return asyncio.run(work())


@pytest.fixture(scope="module")
def run():
    """Run coroutines on one loop, on which servers go on from one test to the next."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def serve(run):
    """Make servers, which end with the test."""
    made = []

    def serve(program, *args, idle=300.0, **more):
        server = Server(
            defined(program, *args, **more), Policy("programs", "environment", "approvals"), on_loop, idle=idle
        )
        made.append(server)
        return server

    yield serve
    for server in made:
        run(server.close())

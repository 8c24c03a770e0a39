"""``python -m benchmarks.labelling``: a labelling job against a model's server that misbehaves, beside the bare client.

The server is a process of its own on the loopback interface. Of the requests one in 50 is refused with 429 and a
Retry-After, one in 70 gets a 500, one in 90 a cut connection, and one hangs for 30 s. The bare client is that of the
provider, `openai.AsyncOpenAI`; it asks the same, as often, and is treated alike. It is given the least that such a job
needs: a loop around each request. Beside it, for the fast server, stands the agent of pydantic-ai with the same loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.agents.model_server import ModelServer, Mood

NAMED = "openai-chat:gpt-4o-mini"
ROLE = "You are labeller."
PARALLEL = 16
HANG = 30.0
MOST_SOCKETS = 20
MOST_TIME = 1.3
ATTEMPTS = 5


class Server(NamedTuple):
    """How the model's server answers, and how long is waited for it."""

    answer: float
    """Seconds that an answer takes."""
    timeout: float
    """`ResponseTimeout`, in seconds."""


SERVERS = {"slow": Server(0.1, 5.0), "fast": Server(0.01, 2.0)}
"""A real model answers slowly; the fast server leaves nothing but the processor to wait for."""


def moods(rows: int) -> dict[int, Mood]:
    """Return what befalls which request."""
    found = {}
    for number in range(rows):
        if number == rows // 3:
            found[number] = Mood(hang=HANG)
        elif number % 50 == 7:
            found[number] = Mood(429, after=0.2)
        elif number % 70 == 11:
            found[number] = Mood(500)
        elif number % 90 == 13:
            found[number] = Mood(cut=True)
    return found


@contextmanager
def served(rows: int, server: str) -> Iterator[str]:
    """Run the server as a process; give its address."""
    command = [sys.executable, "-m", "benchmarks.labelling", "--serve", "--rows", str(rows), "--server", server]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"] = url, "none"
        try:
            yield url
        finally:
            process.kill()


def serve(rows: int, answer: float) -> None:
    """Be the server until somebody ends the process."""
    with ModelServer(moods=moods(rows), slow=answer) as server:  # type: ignore[no-untyped-call]
        print(server.url, flush=True)
        sys.stdin.read()


def counted(url: str) -> dict[str, int]:
    """Return what the server has seen: requests, open and most open connections."""
    with urllib.request.urlopen(url.replace("/v1", "/seen")) as answer:  # noqa: S310 - our own server
        found: dict[str, int] = json.load(answer)
    return found


class Took(NamedTuple):
    """What a job took: seconds, and seconds of a processor in this process."""

    seconds: float
    processor: float


@contextmanager
def timed(took: list[Took]) -> Iterator[None]:
    """Add to `took` what the block takes."""
    began, began_processor = time.perf_counter(), time.process_time()
    yield
    took.append(Took(time.perf_counter() - began, time.process_time() - began_processor))


async def looped(rows: int, ask: Callable[[int], Awaitable[str | None]], errors: type[Exception]) -> Took:
    """Return what the job takes with a plain loop around each request; TimeoutError from `ask` gives a row up."""
    turn = asyncio.Semaphore(PARALLEL)
    took: list[Took] = []

    async def label(row: int) -> str | None:
        async with turn:
            for failures in range(ATTEMPTS):
                try:
                    return await ask(row)
                except TimeoutError:
                    return None
                except errors:
                    await asyncio.sleep(0.05 * 2**failures)
        return None

    with timed(took):
        labels = await asyncio.gather(*map(label, range(rows)))
    assert sum(label is None for label in labels) == 1, labels
    return took[0]


async def bare(rows: int, timeout: float) -> Took:  # noqa: ASYNC109 - the provider's client measures it
    """Return what the job takes with the provider's client."""
    from openai import APIError, APITimeoutError, AsyncOpenAI

    async with AsyncOpenAI(max_retries=0, timeout=timeout) as client:

        async def ask(row: int) -> str | None:
            told = [{"role": "system", "content": ROLE}, {"role": "user", "content": f"Label {row}"}]
            try:
                answer = await client.chat.completions.create(model="gpt-4o-mini", messages=told)  # type: ignore[arg-type]
            except APITimeoutError as error:
                raise TimeoutError from error
            return answer.choices[0].message.content

        return await looped(rows, ask, APIError)


async def bare_agent(rows: int, timeout: float) -> Took:  # noqa: ASYNC109 - pydantic-ai measures it
    """Return what the job takes with the agent of pydantic-ai."""
    import pydantic_ai
    from openai import APITimeoutError
    from pydantic_ai.exceptions import ModelAPIError
    from pydantic_ai.models import infer_model

    async with infer_model(NAMED) as model:
        agent = pydantic_ai.Agent(model, instructions=ROLE)

        async def ask(row: int) -> str | None:
            try:
                answer = await agent.run(f"Label {row}", model_settings={"timeout": timeout, "max_retries": 0})
            except ModelAPIError as error:
                if isinstance(error.__cause__, APITimeoutError):
                    raise TimeoutError from error
                raise
            return answer.output

        return await looped(rows, ask, ModelAPIError)


def durable(rows: int, store: str, timeout: float) -> tuple[Took, Any]:
    """Return what the same job takes as a workflow, and its execution."""
    from divebook import Agent, Each, Environment, Step, Workflow
    from divebook.definitions.resources import AgentDefinition
    from divebook.definitions.step import Retry

    each = Each(list(range(rows)), as_="row", parallel=PARALLEL, on_item_error="keep")
    step = Step("label", agent="labeller", prompt="Label ${row}", each=each, store="labels")
    errors = ("ModelConnectionError", "ModelRateLimitError", "ModelServerError")
    definition = AgentDefinition(
        "labeller", response_timeout=timeout, retry=Retry(ATTEMPTS, seconds=0.05, errors=errors)
    )
    environment = Environment(
        store=store, agents=[Agent(definition, model=NAMED)], workflows=[Workflow("label", [step])]
    )
    took: list[Took] = []
    with timed(took):
        execution = environment.start("label").wait()
    return took[0], execution


def measure(rows: int, store: str, server: str) -> dict[str, Any]:
    """Run the job with and without divebook; return the figures."""
    from divebook.agents import batches as warm  # noqa: F401 - its import is not part of the job

    timeout = SERVERS[server].timeout
    with served(rows, server):
        client = asyncio.run(bare(rows, timeout))
    with served(rows, server) as url:
        took, execution = durable(rows, store, timeout)
        seen = counted(url)
    types = Counter(
        event.event_type
        for event in execution.history()
        if event.event_type.startswith("operation_") and event.data.operation_type == "agent_response"
    )
    labels = execution.variables["labels"]
    found = {
        "rows": rows,
        "store": store.partition(":")[0],
        "server": f"{server}, {SERVERS[server].answer * 1000:g} ms an answer",
        "status": execution.status,
        "labelled": sum(isinstance(label, str) for label in labels),
        "named with their error": sum(isinstance(label, dict) and "error" in label for label in labels),
        "requests": seen["requests"],
        "recorded": types["operation_started"],
        "failed requests": types["operation_failed"],
        "most sockets": seen["most_open"],
        "seconds": round(took.seconds, 2),
        "bare client": round(client.seconds, 2),
        "over the bare client": round(took.seconds / client.seconds, 2),
        "processor, ms a request": round(took.processor / seen["requests"] * 1000, 2),
        "bare client's": round(client.processor / seen["requests"] * 1000, 2),
        "over the bare client's": round(took.processor / client.processor, 2),
    }
    if server == "fast":
        with served(rows, server):
            agent = asyncio.run(bare_agent(rows, timeout))
        found["bare agent"] = round(agent.seconds, 2)
        found["over the bare agent"] = round(took.seconds / agent.seconds, 2)
        found["bare agent's processor, ms a request"] = round(agent.processor / seen["requests"] * 1000, 2)
    return found


def kept(found: dict[str, Any]) -> bool:
    """Print which promises are kept; return whether all are."""
    promises = {
        "every row is labelled or named": found["labelled"] + found["named with their error"] == found["rows"],
        "each request is recorded once": found["requests"] == found["recorded"],
        f"at most {MOST_SOCKETS} sockets": found["most sockets"] <= MOST_SOCKETS,
        f"at most {MOST_TIME} of the bare client's time": found["over the bare client"] <= MOST_TIME,
    }
    for name, holds in promises.items():
        print(f"{'ok    ' if holds else 'MISSED'} {name}")
    return all(promises.values())


def main() -> int:
    """Measure, print, and end with 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.labelling", description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--store", default="memory:", help="memory:, or a path")
    parser.add_argument("--server", choices=SERVERS, help="by default one after the other")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.rows, SERVERS[arguments.server].answer)
        return 0
    all_kept = True
    for server in [arguments.server] if arguments.server else SERVERS:
        found = measure(arguments.rows, arguments.store, server)
        for name, value in found.items():
            print(f"{name}: {value}")
        all_kept = kept(found) and all_kept
    return 0 if all_kept else 1


if __name__ == "__main__":
    sys.exit(main())

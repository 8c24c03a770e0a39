"""``python -m benchmarks.labelling``: a labelling job against a model's server that misbehaves, beside the bare client.

The server is a process of its own on the loopback interface. Of the requests one in 50 is refused with 429 and a
Retry-After, one in 70 gets a 500, one in 90 a cut connection, and one hangs for 30 s. The bare client asks as often
and is treated alike; it is given the least that such a job needs: a loop around each request.
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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.agents.model_server import ModelServer, Mood

NAMED = "openai-chat:gpt-4o-mini"
PARALLEL = 16
SLOW = 0.1
"""Seconds that an answer takes."""
HANG = 30.0
RESPONSE_TIMEOUT = 5.0
MOST_SOCKETS = 20
MOST_TIME = 1.3
ATTEMPTS = 5


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
def served(rows: int) -> Iterator[str]:
    """Run the server as a process; give its address."""
    command = [sys.executable, "-m", "benchmarks.labelling", "--serve", "--rows", str(rows)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"] = url, "none"
        try:
            yield url
        finally:
            process.kill()


def serve(rows: int) -> None:
    """Be the server until somebody ends the process."""
    with ModelServer(moods=moods(rows), slow=SLOW) as server:  # type: ignore[no-untyped-call]
        print(server.url, flush=True)
        sys.stdin.read()


def counted(url: str) -> dict[str, int]:
    """Return what the server has seen: requests, open and most open connections."""
    with urllib.request.urlopen(url.replace("/v1", "/seen")) as answer:  # noqa: S310 - our own server
        found: dict[str, int] = json.load(answer)
    return found


async def bare(rows: int) -> float:
    """Return how many seconds the provider's client takes with a plain loop around each request."""
    from openai import APIError, APITimeoutError, AsyncOpenAI

    async with AsyncOpenAI(max_retries=0, timeout=RESPONSE_TIMEOUT) as client:
        turn = asyncio.Semaphore(PARALLEL)

        async def label(row: int) -> str | None:
            async with turn:
                for failures in range(ATTEMPTS):
                    try:
                        answer = await client.chat.completions.create(
                            model="gpt-4o-mini", messages=[{"role": "user", "content": f"Label {row}"}]
                        )
                    except APITimeoutError:
                        return None
                    except APIError:
                        await asyncio.sleep(0.05 * 2**failures)
                    else:
                        return answer.choices[0].message.content
            return None

        began = time.perf_counter()
        labels = await asyncio.gather(*map(label, range(rows)))
        took = time.perf_counter() - began
    assert sum(label is None for label in labels) == 1, labels
    return took


def durable(rows: int, store: str) -> tuple[float, Any]:
    """Return how many seconds the same job takes as a workflow, and its execution."""
    from divebook import Agent, Each, Environment, Step, Workflow
    from divebook.workflow.definition import AgentDefinition
    from divebook.workflow.policies import Retry

    each = Each(list(range(rows)), as_="row", parallel=PARALLEL, on_item_error="keep")
    step = Step("label", agent="labeller", prompt="Label ${row}", each=each, store="labels")
    errors = ("ModelConnectionError", "ModelRateLimitError", "ModelServerError")
    definition = AgentDefinition(
        "labeller", response_timeout=RESPONSE_TIMEOUT, retry=Retry(ATTEMPTS, seconds=0.05, errors=errors)
    )
    environment = Environment(
        store=store, agents=[Agent(definition, model=NAMED)], workflows=[Workflow("label", [step])]
    )
    began = time.perf_counter()
    execution = environment.start("label").wait()
    return time.perf_counter() - began, execution


def measure(rows: int, store: str) -> dict[str, Any]:
    """Run both jobs; return the figures."""
    from divebook.agents import durable as warm  # noqa: F401 - its import is not part of the job

    with served(rows) as url:
        client = asyncio.run(bare(rows))
    with served(rows) as url:
        took, execution = durable(rows, store)
        seen = counted(url)
    types = Counter(
        event.event_type
        for event in execution.history()
        if event.event_type.startswith("operation_") and event.data.operation_type == "agent_response"
    )
    labels = execution.variables["labels"]
    return {
        "rows": rows,
        "store": store.partition(":")[0],
        "status": execution.status,
        "labelled": sum(isinstance(label, str) for label in labels),
        "named with their error": sum(isinstance(label, dict) and "error" in label for label in labels),
        "requests": seen["requests"],
        "recorded": types["operation_started"],
        "failed requests": types["operation_failed"],
        "most sockets": seen["most_open"],
        "seconds": round(took, 2),
        "bare client": round(client, 2),
        "over the bare client": round(took / client, 2),
    }


def main() -> int:
    """Measure, print, and end with 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.labelling", description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--store", default="memory:", help="memory:, or a path")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.rows)
        return 0
    found = measure(arguments.rows, arguments.store)
    for name, value in found.items():
        print(f"{name}: {value}")
    kept = {
        "every row is labelled or named": found["labelled"] + found["named with their error"] == arguments.rows,
        "each request is recorded once": found["requests"] == found["recorded"],
        f"at most {MOST_SOCKETS} sockets": found["most sockets"] <= MOST_SOCKETS,
        f"at most {MOST_TIME} of the bare client's time": found["over the bare client"] <= MOST_TIME,
    }
    for name, holds in kept.items():
        print(f"{'ok    ' if holds else 'MISSED'} {name}")
    return 0 if all(kept.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

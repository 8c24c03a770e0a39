"""What the operations about pipelines do with the public API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from divebook.errors import OperationError
from divebook.pipeline import Pipeline, StageResult
from divebook.pipeline.envelope import Envelope
from tests.conformance.scenario.paths import read
from tests.conformance.scenario.world import ENVELOPE, StandingClock, World

PIPELINE = "pipe"
Step = Mapping[str, Any]
Operation = Callable[[World, Step], None]


class Piped:
    """A `Pipeline` whose stages follow a script, with what cases look at."""

    def __init__(self, config: Mapping[str, Any], script: Mapping[str, Any], clock: StandingClock) -> None:
        self.emitted: list[str] = []
        self.saves: list[dict[str, Any]] = []
        self.save_fails = False
        self._script, self._turns = script, dict.fromkeys(script, 0)
        names = [agent["name"] for agent in config["agents"]]
        services = {name: self._service(name) for name in names}
        self.pipeline = Pipeline(config, services=services, save=self._save, clock=clock)

    @property
    def order(self) -> list[str]:
        """The names of the stages."""
        return self.pipeline.order

    @property
    def A(self) -> Mapping[str, Any]:  # noqa: N802 - as cases call it
        """The stages by name."""
        return self.pipeline.stages

    def ready(self, completed: Mapping[str, bool]) -> list[str]:
        """Return the stages that may begin."""
        return self.pipeline.ready(completed)

    def edge_limit(self, source: str, target: str) -> int:
        """Return how often an edge may be passed."""
        return self.pipeline.edge_limit(source, target)

    def _save(self, state: dict[str, Any]) -> None:
        if self.save_fails:
            raise OSError("disk full")
        self.saves.append(state)

    def _service(self, name: str) -> Callable[[Envelope], StageResult]:
        def serve(envelope: Envelope) -> StageResult:
            told = self._next(name)
            if "interrupt" in told:
                envelope.set_interrupt(**told["interrupt"])
            if "error" in told:
                raise OperationError(told["error"])
            return StageResult(told.get("output", {}), told.get("llm_calls"))

        return serve

    def _next(self, name: str) -> Mapping[str, Any]:
        results = self._script.get(name)
        if not results:
            return {}
        turn = self._turns[name]
        self._turns[name] += 1
        told: Mapping[str, Any] = results[min(turn, len(results) - 1)]
        return told


def _pipeline(world: World, step: Step) -> None:
    world.bind(step, PIPELINE, Piped(step["config"], step.get("script", {}), world.clock))


def _piped(world: World, step: Step) -> Piped:
    found = read(world.names, step.get("on", PIPELINE))
    assert isinstance(found, Piped)
    return found


def _run(world: World, step: Step) -> None:
    piped, envelope = _piped(world, step), read(world.names, step.get("env", ENVELOPE))

    async def follow() -> None:
        async for item in piped.pipeline.stream(envelope, mode=step.get("mode")):
            piped.emitted.append(item.stage)

    asyncio.run(follow())


def _resume(world: World, step: Step) -> None:
    envelope = read(world.names, step.get("env", ENVELOPE))
    response = world.resolved(step["response"])
    _piped(world, step).pipeline.resume(envelope, response, interrupt_id=step.get("interrupt_id"))


PIPELINE_OPERATIONS: Mapping[str, Operation] = {"pipeline": _pipeline, "run": _run, "resume": _resume}

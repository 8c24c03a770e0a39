"""The outside: what steps do, counted where no crash can reach, going wrong by plan."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from divebook.engine.operations import ACTION_EXECUTION, Place
from divebook.errors import StepError
from divebook.runtime.context import StepContext
from divebook.runtime.step import Outcome
from tests.simulation.functions import CallPlan
from tests.simulation.scenario import ERROR, TIMEOUT, TIMEOUT_AFTER, Scenario, StepPlan

CONDITION = re.compile(r"\$\(state\.(\w+) % (\d+) (<|>=) (\d+)\)")
DELAYS = (0.0, 0.0, 0.25, 1.0, 1.0, 20.0)
FAILURE = "planned failure"


class PlannedError(Exception):
    """A failure that the plan wants."""


class ProcessDiedError(Exception):
    """Whatever a dead process still tries."""


class World:
    """Everything outside of the engine but the store.

    Attributes
    ----------
    begun, effects
        How often the call at each site was begun, and took effect.
    sites
        Operation id to site: the same for every attempt of one call.
    calm
        Nothing goes wrong any more but what always does.
    """

    def __init__(self, seed: str, scenario: Scenario, *, calm: bool, slow: bool) -> None:
        self.seed, self.scenario, self.calm, self.slow = seed, scenario, calm, slow
        self.dead = False
        self.begun: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.sites: dict[str, str] = {}
        self.repeatable: set[str] = set()
        """Sites of the calls that are declared idempotent: these may begin before their start is in the log."""
        self.before_call: Callable[[str, int], None] = lambda _site, _begun: None
        self._turns: Counter[str] = Counter()

    # --- steps -----------------------------------------------------------------------------------------------------

    async def action(self, context: StepContext) -> Outcome:
        """Carry out an action step: operations that read variables and give a number."""
        plan = self.scenario.plans[context.step.name]
        result: Any = None
        for number in range(1, plan.operations + 1):
            try:
                result = await self._operation(context, plan, number)
            except Exception as error:
                raise StepError(f"action failed: {error}") from error
        return Outcome(json.dumps(result), result)

    async def _operation(self, context: StepContext, plan: StepPlan, number: int) -> Any:
        place = Place(context.path, context.step.name, context.visit, context.iteration_index, number, context.attempt)
        site = place._replace(attempt=0).operation_id
        self.sites[place.operation_id] = site
        if plan.repeatable:
            self.repeatable.add(site)
        parameters = self._parameters(context, number)

        async def call() -> Any:
            failures = plan.failures if number == 1 else ()
            if await self._call(site, failures, permanent=plan.permanent):
                raise TimeoutError(FAILURE)
            return result_of(parameters)

        return await context.operation(
            ACTION_EXECUTION, parameters, call, repeatable=plan.repeatable, may_begin_early=plan.repeatable
        )

    @staticmethod
    def _parameters(context: StepContext, number: int) -> dict[str, Any]:
        given = context.step.parameters
        local = list(context.local.values())
        reads = {name: context.variables.get(name) for name in given["reads"]}
        return {"kind": given["kind"], "salt": given["salt"], "reads": reads, "item": local, "number": number}

    async def invoke(self, number: int) -> int:
        """Make a call of the workflow's function."""
        assert self.scenario.function is not None
        plan: CallPlan = self.scenario.function.calls[number]
        if plan.repeatable:
            self.repeatable.add(call_site(number))
        await self._call(call_site(number), plan.failures, permanent=plan.permanent)
        return int(result_of({"arguments": {"number": number}}))

    async def _call(self, site: str, failures: tuple[str, ...], *, permanent: bool) -> bool:
        """Take effect, or fail; return whether the answer is lost."""
        self._check_alive()
        self.before_call(site, self.begun[site])
        self.begun[site] += 1
        await self.pause(site)
        self._check_alive()
        kind = self._outcome(site, failures, permanent=permanent)
        if kind == ERROR:
            raise PlannedError(FAILURE)
        if kind == TIMEOUT:
            raise TimeoutError(FAILURE)
        self.effects[site] += 1
        await self.pause(site)
        return kind == TIMEOUT_AFTER

    def _outcome(self, site: str, failures: tuple[str, ...], *, permanent: bool) -> str | None:
        if permanent:
            return ERROR
        if self.calm or self.failed[site] >= len(failures):
            return None
        self.failed[site] += 1
        return failures[self.failed[site] - 1]

    def _check_alive(self) -> None:
        if self.dead:
            raise ProcessDiedError("a dead process makes no calls")

    async def pause(self, label: str) -> None:
        """Take as long as chance has it for this label's next pause."""
        self._turns[label] += 1
        if self.slow:
            await asyncio.sleep(Random(f"{self.seed}/{label}/{self._turns[label]}").choice(DELAYS))

    # --- what a person who is asked can find out -------------------------------------------------------------------

    def site_of(self, operation_id: str, parameters: Mapping[str, Any]) -> str:
        """Return the site of an operation that is asked about."""
        if "arguments" in parameters:
            return call_site(parameters["arguments"]["number"])
        return self.sites[operation_id]

    def plan_of(self, step: str, parameters: Mapping[str, Any]) -> StepPlan | CallPlan:
        """Return how the calls of a step, or one call of a function, behave."""
        if "arguments" in parameters and self.scenario.function is not None:
            number: int = parameters["arguments"]["number"]
            return self.scenario.function.calls[number]
        return self.scenario.plans[step]

    def always_fails(self, step: str) -> bool:
        """Whether no attempt of a step can succeed."""
        plan = self.scenario.plans.get(step)
        return plan is not None and plan.permanent

    # --- what the engine evaluates ---------------------------------------------------------------------------------

    async def condition_holds(self, condition: str, names: Mapping[str, Any]) -> bool:
        """Return the truth of ``$(state.x % m < k)``."""
        match = CONDITION.fullmatch(condition)
        assert match, condition
        name, modulus, comparison, bound = match.groups()
        await self.pause(condition)
        below: bool = names["state"][name] % int(modulus) < int(bound)
        return below == (comparison == "<")

    async def items_of(self, items: Any, names: Mapping[str, Any], *, flatten: bool = False) -> list[Any]:
        """Return the items of a loop."""
        assert not flatten, "only the dialect dive flattens"
        found: list[Any] = names["state"][items[len("$(state.") : -1]] if isinstance(items, str) else items
        return found

    async def fill(self, given: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a rollback is given: what the step has given that it undoes."""
        return {**given, "undoes": names["result"]}


def call_site(number: int) -> str:
    """Return the site of a call of the workflow's function."""
    return f"call {number}"


def result_of(parameters: Mapping[str, Any]) -> Any:
    """Return what an operation with these parameters gives: nothing but them decides."""
    if "arguments" in parameters:
        return parameters["arguments"]["number"] * 11
    if parameters["kind"] == "count":
        return 1 + sum(value or 0 for value in parameters["reads"].values())
    drawn = zlib.crc32(json.dumps(parameters, sort_keys=True).encode())
    return [drawn % 7, drawn % 5, drawn % 3][: 1 + drawn % 3] if parameters["kind"] == "list" else drawn % 1000

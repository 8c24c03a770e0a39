"""Commands that try a change without changing a run: ``what-if``, ``try``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypeAlias, TypedDict, cast

from divebook.commands.command import SHELL, START, Fields, Invocation, command, option, with_times, word
from divebook.commands.driving import advising_definitions
from divebook.commands.parameters import (
    AnswersChanged,
    AtSharedEvent,
    BoundsText,
    InputsChanged,
    ModelName,
    PromptsChanged,
    ResultsChanged,
    RunOrNewest,
    ToolsAllowed,
    VariablesChanged,
)
from divebook.commands.values import read_change
from divebook.errors import SetupError
from divebook.text.ranges import INTEGER

if TYPE_CHECKING:
    from divebook.definitions.definition import Workflow
    from divebook.environments.variants import TrialOptions, WhatIfOptions
    from divebook.replay.trial import StepTrial
    from divebook.replay.what_if import Plan, RepeatedWhatIf, WhatIf


class ChangeData(TypedDict):
    """Change of a what-if as JSON."""

    variables: NotRequired[dict[str, Any]]
    inputs: NotRequired[dict[str, Any]]
    results: NotRequired[dict[str, Any]]
    answers: NotRequired[dict[str, Any]]
    prompts: NotRequired[dict[str, str]]


class FirstDifferenceData(TypedDict):
    """The first difference between a what-if and its run as JSON."""

    event: int | None
    step: str
    text: str


class WhatIfData(TypedDict):
    """A what-if as JSON: its result, and the numbers of replayed (`served`), live and other calls."""

    id: str
    source: str
    at: int
    change: ChangeData
    status: str
    error: str | None
    outputs: dict[str, Any]
    served: int
    live: int
    blocked: int
    computed: int
    skipped: int
    unused: int
    cost: float | None
    comparable: str
    calls: list[Annotated[dict[str, Any], Fields("divebook.replay.what_if:UnreusedCall")]]
    first_difference: FirstDifferenceData | None
    differences: dict[str, int]
    unchecked: list[str]


class WhatIfPlanData(TypedDict):
    """Plan of a what-if as JSON: reused and live calls, and the expected cost."""

    source: str
    at: int
    change: ChangeData
    reused: int
    live: list[Annotated[dict[str, Any], Fields("divebook.replay.what_if:Planned")]]
    cost: float | None
    unknown: list[str]
    blocked: int


class WhatIfsData(TypedDict):
    """Result of ``what-if`` as JSON: the what-ifs, or with ``--plan`` the plan."""

    what_ifs: list[WhatIfData]
    plan: WhatIfPlanData | None


def what_if_data(result: WhatIf | RepeatedWhatIf | Plan) -> WhatIfsData:
    """Return what-ifs, or the plan of one, as plain data."""
    from divebook.replay.what_if import Plan, WhatIf

    if isinstance(result, Plan):
        return {"what_ifs": [], "plan": _plan_data(result)}
    variants = [result] if isinstance(result, WhatIf) else list(result)
    return {"what_ifs": [_variant_data(each) for each in variants], "plan": None}


def _plan_data(plan: Plan) -> WhatIfPlanData:
    return {
        "source": plan.source,
        "at": plan.at,
        "change": cast("ChangeData", plan.change.to_data()),
        "reused": plan.reused,
        "live": [call._asdict() for call in plan.live],
        "cost": plan.cost,
        "unknown": list(plan.unknown),
        "blocked": plan.blocked,
    }


def _variant_data(variant: WhatIf) -> WhatIfData:
    run = variant.run
    first = variant.diff
    return {
        "id": run.id,
        "source": variant.source,
        "at": variant.at,
        "change": cast("ChangeData", variant.change.to_data()),
        "status": run.status,
        "error": run.error,
        "outputs": dict(variant.outputs),
        "served": variant.tally.served,
        "live": variant.tally.live,
        "blocked": variant.tally.blocked,
        "computed": variant.tally.computed,
        "skipped": variant.tally.skipped,
        "unused": variant.tally.unused,
        "cost": variant.cost,
        "comparable": variant.comparable,
        "calls": [call._asdict() for call in variant.calls],
        "first_difference": None if first is None else {"event": first.event, "step": first.step, "text": first.text},
        "differences": {str(way): count for way, count in variant.comparison.pairs[0].counts.items()},
        "unchecked": list(variant.unchecked),
    }


def exit_code_of_what_ifs(result: WhatIf | RepeatedWhatIf | Plan) -> int:
    """Return the exit code of the first what-if that did not complete, else 0."""
    from divebook.commands.command import EXIT_CODES
    from divebook.replay.what_if import Plan, WhatIf

    if isinstance(result, Plan):
        return 0
    variants = [result] if isinstance(result, WhatIf) else list(result)
    # A status without a code, such as "moved", counts as a failure.
    codes = [EXIT_CODES.get(each.run.status, 1) for each in variants]
    return next((code for code in codes if code != 0), 0)


@command(
    "what-if",
    START,
    example="what-if exec_01k8 --input city=Bonn --plan",
    python="run.what_if",
    data=what_if_data,
    exit_code=exit_code_of_what_ifs,
    needs_definitions=True,
    shell_help="The exit codes are those of `divebook run`.",
    notebook_help="`w = %dive what-if --input city=Bonn` assigns the result to a variable, with `w.outputs`, "
    "`w.served`, `w.live`, `w.blocked`, `w.unused`, `w.cost` and `w.diff`. `w.comparison.frame()` compares both runs "
    "step by step.",
)
def what_if(
    call: Invocation,
    run: RunOrNewest = None,
    *,
    at: AtSharedEvent = None,
    variables: VariablesChanged = None,
    inputs: InputsChanged = None,
    answer: AnswersChanged = None,
    result: ResultsChanged = None,
    prompt: PromptsChanged = None,
    model: ModelName = None,
    tools: ToolsAllowed = "recorded",
    repeat: Annotated[
        int | None,
        option(
            "--repeat",
            allowed=INTEGER,
            help="Number of times to run the what-if. The results can differ if models are called.",
        ),
    ] = None,
    plan: Annotated[
        bool, option("--plan", help="Only print which calls would be reused and which would be live. No call is made.")
    ] = False,
    bounds: BoundsText = None,
) -> WhatIf | RepeatedWhatIf | Plan:
    """Repeat a run with a change, and reuse its recorded results.

    Results in the log are reused. If the log has no result of a call, a model is called; for actions and tools, --tools
    decides whether they run. The original run does not change. The output shows which calls were replayed, live,
    blocked and unused, and which results differ.
    """
    from divebook.config.answers import bounds_from, change_from

    change = change_from(variables or (), result or (), prompts=prompt or (), model=model)
    options: WhatIfOptions = {"tools": tools, "bounds": bounds_from(bounds)}
    source = call.run(run, with_definitions=True)
    change = read_change(source, change, inputs or (), answer or ())
    # Secrets are learned before anything is run that could print them.
    call.learn(change.variables, change.inputs)
    with advising_definitions(call):
        # Three calls, since the result type of `what_if` depends on `plan` and `repeat`.
        if plan:
            return source.what_if(change, at, plan=True, **options)
        if repeat is None:
            variant = source.what_if(change, at, **options)
            # Answers of models may have added secrets.
            call.learn(variant.run.state.variables)
            return variant
        variants = source.what_if(change, at, repeat=repeat, **options)
        call.learn(*(each.run.state.variables for each in variants))
        return variants


# --- try -------------------------------------------------------------------------------------------------------------


TrialResultData: TypeAlias = Annotated[dict[str, Any], Fields("divebook.replay.trial:TrialResult")]


class TrialData(TypedDict):
    """Result of ``try`` as JSON: the recorded result and the tries."""

    source: str
    step: str
    cost: float | None
    entry: Annotated[dict[str, Any], Fields("divebook.replay.trial:StepEntry")]
    recorded: TrialResultData
    tries: list[TrialResultData]


def trial_data(trial: StepTrial) -> TrialData:
    """Return the tries of a step as plain data."""
    recorded, *tries = (with_times(asdict(tried)) for tried in (trial.recorded, *trial.tries))
    return {
        "source": trial.source,
        "step": trial.entry.step,
        "cost": trial.cost,
        "entry": trial.entry._asdict(),
        "recorded": recorded,
        "tries": tries,
    }


def exit_code_of_trial(trial: StepTrial) -> int:
    """Return 1 if a try did not complete, else 0."""
    from divebook.events.catalog import COMPLETED

    return 0 if all(tried.status == COMPLETED for tried in trial.tries) else 1


@command(
    "try",
    START,
    example="try draft exec_01k8 --times 3",
    python="run.try_step",
    data=trial_data,
    exit_code=exit_code_of_trial,
    needs_definitions=True,
    shell_help="The exit code is 1 if a try did not complete.",
    notebook_help="The first line of a cell `%%dive try STEP` takes the same arguments and options. The lines below "
    "it are keys that replace those of the step, such as `Prompt: Shorter, please`. `t = %dive try draft --times 3` "
    "assigns the result to `t`: `t.tries[0].value` is the value of the first try, `t.frame()` a DataFrame of all "
    "tries. `t.keep()` writes the workflow with the changed step into a new cell.",
)
def try_step(
    call: Invocation,
    step: Annotated[
        str,
        word("STEP", "Name of the step. For a workflow function: name of an agent that it asked.", completes="step"),
    ],
    run: RunOrNewest = None,
    *,
    times: Annotated[int, option("--times", allowed=INTEGER, help="Number of tries.")] = 1,
    keys: Annotated[
        Path | None,
        option(
            "--keys",
            metavar="FILE",
            help="YAML file with keys that replace those of the step.",
            completes="file",
            interfaces=[SHELL],
        ),
    ] = None,
    variables: VariablesChanged = None,
    inputs: InputsChanged = None,
    visit: Annotated[
        int | None,
        option("--visit", allowed=INTEGER, help="Visit of the step, counted from 1. Default: the last visit."),
    ] = None,
    item: Annotated[
        int | None,
        option("--item", allowed=INTEGER, help="Index of one item of Each, counted from 0. Default: all items."),
    ] = None,
    model: ModelName = None,
    tools: ToolsAllowed = "recorded",
    bounds: BoundsText = None,
    keep: Annotated[
        Path | None,
        option(
            "--keep",
            metavar="FILE",
            help="Write the workflow with the changed step to this file.",
            completes="file",
        ),
    ] = None,
) -> StepTrial:
    """Run one step of a run again, and compare the results.

    The step starts with its recorded state. The run does not change. Models are called. Actions and tools return the
    recorded result of the same call; without a recorded result, --tools decides whether they run.
    """
    from divebook.config.answers import bounds_from, change_from
    from divebook.definitions.reader import with_keys

    # Checked before the tries, which may cost money.
    if keep is not None and keep.exists():
        raise SetupError(f"{keep} exists already; name another file with --keep")
    change = change_from(variables or ())
    limits = bounds_from(bounds)
    # The same for the keys: an error must not come after the first calls.
    text = call.cell.text if keys is None else keys.read_text(encoding="utf-8")
    source_name = call.cell.source_name if keys is None else str(keys)
    source = call.run(run, with_definitions=True)
    change = read_change(source, change, inputs or ())
    call.learn(change.variables, change.inputs)

    def changed(workflow: Workflow) -> Workflow:
        return with_keys(workflow, step, text, source_name=source_name, line_offset=call.cell.lines_above)

    options: TrialOptions = {
        "variables": change.variables,
        "inputs": change.inputs,
        "visit": visit,
        "item": item,
        "tools": tools,
        "model": model,
        "bounds": limits,
    }
    has_keys = bool(text.strip())
    if has_keys:
        # An error about a missing name may be caused by the keys, and then a file of agents does not help.
        trial = source.try_step(step, changed, times=times, **options)
    else:
        with advising_definitions(call):
            trial = source.try_step(step, None, times=times, **options)
    if keep is not None:
        trial.keep(keep)
        call.print_note(f"wrote {keep}")
    return trial

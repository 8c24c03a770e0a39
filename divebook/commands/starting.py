"""Commands that start runs: ``run``, ``ask``, ``enqueue``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from divebook.commands.command import (
    NOTEBOOK,
    QUEUES,
    START,
    Invocation,
    StartRequest,
    command,
    option,
    word,
)
from divebook.commands.driving import Drive, drive_data
from divebook.commands.parameters import (
    AnswersFile,
    BoundsText,
    Durability,
    EarlyAnswers,
    Inputs,
    ModelName,
    NoteText,
    OnConflict,
    ReadDialect,
    StartKey,
    Tags,
    WorkflowName,
    WorkflowOption,
)
from divebook.commands.values import read_inputs, split_inputs
from divebook.text.ranges import INTEGER

if TYPE_CHECKING:
    from divebook.definitions.definition import Workflow
    from divebook.environments.starts import StartOptions
    from divebook.runtime.run import Run


def _inputs_of(call: Invocation, workflow: Workflow, assignments: list[str] | None) -> dict[str, Any]:
    """Return the inputs that a call gives a workflow: typed texts, and objects of the notebook."""
    inputs = {**read_inputs(assignments or (), workflow), **call.objects}
    call.learn(inputs)
    return inputs


New = Annotated[
    bool, option("--new", help="Start a new run, even if this cell has started one before.", interfaces=[NOTEBOOK])
]
Changed = Annotated[
    Literal["again", "keep", "reuse"] | None,
    option(
        "--changed",
        metavar="again|keep|reuse",
        help="Action after an edit. Edited functions: again starts at the first call that the edit can affect, and "
        "reuses the results of earlier calls; keep shows the earlier run; by default the cell offers both. Edited "
        "definition: reuse runs only the calls that differ; again (default) runs all calls.",
        interfaces=[NOTEBOOK],
    ),
]


@command(
    "run",
    START,
    example="run audit.yaml -v limit=20",
    python="divebook.run",
    notebook_example="run audit limit=20",
    data=drive_data,
    file_help="File or folder with definitions: YAML, JSON, a notebook or Python.",
    makes_store=True,
    drives=True,
    waits_for_expiry=True,
    shell_help="If the run has to wait for an answer, the command prints how to answer and ends with exit code 3. "
    "Without a terminal, it waits until a question with ExpiresIn and Default expires, and continues with the "
    "Default; with --no-wait it returns at once. Ctrl-C cancels the run, which can be resumed.",
    notebook_help="`r = %dive run ...` assigns the run to a variable. Interrupting the kernel pauses the run. If the "
    "run fails, it is shown and the cell fails, so that Run All stops; `r = %dive show RUN` returns the failed run. "
    "If the same cell is executed again with the same workflow and inputs, it continues its run, or shows it if it "
    "has completed. Run All therefore repeats no call. KEY=$NAME is an input whose value is a variable of the kernel, "
    "or an expression such as n=$df.head(2).",
)
def run(
    call: Invocation,
    name: WorkflowName = None,
    *,
    inputs: Inputs = None,
    workflow: WorkflowOption = None,
    dialect: ReadDialect = "divebook",
    bounds: BoundsText = None,
    model: ModelName = None,
    durability: Durability = None,
    tags: Tags = None,
    note: NoteText = None,
    key: StartKey = None,
    on_conflict: OnConflict = "warn",
    answer: EarlyAnswers = None,
    answers: AnswersFile = None,
    new: New = False,
    changed: Changed = None,
) -> Drive:
    """Run a workflow and show its result."""
    from divebook.config.answers import answers_from, bounds_from

    # Wrong arguments are reported before a store is opened or created.
    split_inputs(inputs or ())
    limits = bounds_from(bounds)
    early_answers = answers_from(answer or (), answers)
    call.add_definitions(dialect)
    chosen = call.choose_workflow(call.environment, name or workflow)
    options: StartOptions = {
        "durability": durability,
        "bounds": limits,
        "model": model,
        "tags": tags,
        "note": note,
        "key": key,
        "on_conflict": on_conflict,
    }
    request = StartRequest(chosen, _inputs_of(call, chosen, inputs), options, early_answers, new, changed)
    return Drive(call, lambda: call.start(call, request), early_answers, needs_advice=False)


# --- ask: a workflow of one step, so that the question is recorded and shown like any run ----------------------------


@command(
    "ask",
    START,
    example="ask critic 'Is this clear?'",
    no_python='A workflow with a prompt step does the same: `Step("ask", agent=..., prompt=...)`.',
    interfaces=[NOTEBOOK],
    drives=True,
    notebook_help="`r = %dive ask ...` assigns the run to a variable. It is the run of a workflow with one step. "
    '`r.variables["answer"]` is the answer; `r.conversation`, `r.messages` and `r.tool_calls` show how the agent '
    "produced it. If the same cell is executed again, it continues or shows its run. Run All therefore "
    "sends no prompt twice.",
)
def ask(
    call: Invocation,
    agent: Annotated[str, word("AGENT", "Name of the agent.", completes="agent")],
    prompt: Annotated[
        str,
        word("PROMPT", "Prompt: a string in quotes, or a variable of the kernel ($question).", completes="text"),
    ],
    *,
    output: Annotated[
        str | None,
        option(
            "--output",
            metavar="NAME",
            help="Class of the answer: a pydantic model or dataclass of the kernel, or another allowed class.",
            completes="class",
        ),
    ] = None,
    thread: Annotated[
        str | None,
        option(
            "--thread",
            metavar="ID",
            help="Name of the conversation to continue, also from an earlier run. A new name starts a conversation.",
        ),
    ] = None,
    bounds: BoundsText = None,
    model: ModelName = None,
    durability: Durability = None,
    tags: Tags = None,
    note: NoteText = None,
    answer: EarlyAnswers = None,
    answers: AnswersFile = None,
    new: New = False,
) -> Drive:
    """Send a prompt to an agent, and show the conversation."""
    from divebook.config.answers import answers_from, bounds_from

    # The name is looked up before the run starts, so that a typing mistake does not leave a failed run.
    name = call.environment.internals.registry.agent(agent).name
    workflow = ask_workflow(name, class_of_answer(output, call.variables), thread)
    early_answers = answers_from(answer or (), answers)
    options: StartOptions = {
        "durability": durability,
        "bounds": bounds_from(bounds),
        "model": model,
        "tags": tags,
        "note": note,
    }
    request = StartRequest(workflow, {"prompt": prompt}, options, early_answers, new)
    return Drive(call, lambda: call.start(call, request), early_answers)


STEP = "ask"
ANSWER = "answer"


def ask_workflow(agent: str, output: str | None = None, thread: str | None = None) -> Workflow:
    """Return a workflow whose only step asks an agent the question in the input ``prompt``.

    Parameters
    ----------
    output
        Name of the allowed class of the answer.
    thread
        Name of a conversation that the question continues.

    >>> ask_workflow("critic").name
    'ask critic'
    """
    from divebook.definitions.definition import InputDefinition, Workflow
    from divebook.definitions.step import Step

    # The prompt is passed as an input and not inserted into the definition, because its text may contain ``${...}``
    # (`tests/notebook/test_ask.py::test_what_is_asked_is_a_text_and_no_template`).
    step = Step(STEP, agent=agent, prompt="${inputs.prompt}", output=output, thread=thread, store=ANSWER)
    return Workflow(f"ask {agent}", [step], inputs=[InputDefinition("prompt", type="string")], outputs=[ANSWER])


def class_of_answer(name: str | None, variables: Mapping[str, Any]) -> str | None:
    """Return the full name of the class that the answer of an agent must have; None if no class is named.

    A class that is defined in the kernel is allowed by this function call. Any other name must be that of a class that
    is already allowed.

    Raises
    ------
    NotFoundError
        No class has that name.
    """
    from divebook.definitions.answer_types import allow_answers, answer_type
    from divebook.events.classes import name_of

    answer_class = variables.get(name or "")
    # A name that is not a variable of the kernel must be an allowed class. `answer_type` checks this and raises.
    if not isinstance(answer_class, type):
        answer_type(name)
        return name
    # Naming the class on the line is the person's consent to create instances of it.
    allow_answers(answer_class)
    return name_of(answer_class)


# --- enqueue ---------------------------------------------------------------------------------------------------------


class EnqueuedData(TypedDict):
    """Result of ``enqueue`` as JSON."""

    id: str
    status: str
    queue: str | None


def enqueued_data(run: Run) -> EnqueuedData:
    """Return an enqueued run as plain data."""
    return {"id": run.id, "status": run.status, "queue": run.state.queue}


@command(
    "enqueue",
    QUEUES,
    example="enqueue audit.yaml -v limit=20 --queue labels",
    python="environment.enqueue",
    notebook_example="enqueue audit limit=20 --queue labels",
    data=enqueued_data,
    file_help="File or folder with definitions: YAML, JSON, a notebook or Python.",
    makes_store=True,
    shell_help="The command prints the id of the run.",
    notebook_help="The run is shown live. A worker runs it: `divebook worker FILE --queue NAME` in a shell, on any "
    "machine that can access the store. If the same cell is executed again with the same workflow and inputs, it "
    "shows the run that it has enqueued. Run All therefore enqueues no run twice.",
)
def enqueue(
    call: Invocation,
    name: WorkflowName = None,
    *,
    inputs: Inputs = None,
    workflow: WorkflowOption = None,
    queue: Annotated[str, option("--queue", metavar="NAME", help="Name of the queue.", completes="queue")] = "default",
    priority: Annotated[
        int, option("--priority", allowed=INTEGER, help="Priority. Runs with a higher priority are started first.")
    ] = 0,
    at: Annotated[
        str | None, option("--at", metavar="TIME", help="Earliest start in local time, such as 2026-05-01T08:00.")
    ] = None,
    key: StartKey = None,
    on_conflict: OnConflict = "warn",
    tags: Tags = None,
    note: NoteText = None,
    new: New = False,
) -> Run:
    """Put a run of a workflow into a queue, for a worker to start."""
    from divebook.environments.starts import time_named

    # Wrong arguments are reported before a store is opened or created.
    split_inputs(inputs or ())
    when = time_named(at)
    call.add_definitions()
    chosen = call.choose_workflow(call.environment, name or workflow)
    options: StartOptions = {
        "key": key,
        "on_conflict": on_conflict,
        "tags": tags,
        "note": note,
    }
    request = call.prepare(call, StartRequest(chosen, _inputs_of(call, chosen, inputs), options, always_new=new))
    return call.environment.enqueue(
        request.workflow, request.inputs, queue=queue, priority=priority, at=when, **request.options
    )

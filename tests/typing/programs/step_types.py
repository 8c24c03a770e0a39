"""Step types, executors and stores of one's own, as a plugin has them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from divebook import Environment, Step, Workflow
from divebook.definitions import WorkspaceDefinition
from divebook.steps import Outcome, StepContext
from divebook.workspaces import LocalWorkspace, Workspace


async def shout(context: StepContext) -> Outcome:
    text = str(context.step.script).upper()
    context.emit("shouted", {"text": text})
    return Outcome(text, text)


def check(flow: Workflow) -> None:
    if not flow.steps:
        raise ValueError("no steps")


class Box(LocalWorkspace):
    kind = "box"


def make_box(folder: Path, definition: WorkspaceDefinition, options: dict[str, Any]) -> Workspace:
    return Box(folder, **options)


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as pool, Environment(store="memory:", executor=pool) as environment:
        environment.add_step_type("script", shout, check)
        environment.add_executor("pool", pool)
        flow = Workflow("w", [Step("s", script="go", store="text")], outputs=["text"])
        assert environment.start(flow).result() == "GO"
    assert callable(make_box)

"""Loops over typed items, steps made in Python from lists, edges, and results of each item."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypedDict

from divebook import Ask, Catch, Each, Edge, Environment, Retry, Rollback, Step, Workflow, action


class Row(TypedDict):
    name: str
    size: int


ROWS: list[Row] = [{"name": "a", "size": 1}, {"name": "b", "size": 2}]
NAMES: tuple[str, ...] = ("x", "y")
COUNTS: set[int] = {3}


@action("Rows.Grow", retry=Retry(2, seconds=timedelta(0)), timeout=timedelta(minutes=1))
def grow(row: Row, by: int = 1) -> Row:
    return {"name": row["name"], "size": row["size"] + by}


@action("Rows.Undo")
def undo(row: Row) -> None: ...


def steps(items: Iterable[Row]) -> list[Step]:
    return [
        Step(
            "grow",
            action="Rows.Grow",
            parameters={"row": "$(row)", "by": 2},
            each=Each(items=list(items), as_="row", parallel=4, on_item_error="keep"),
            store="grown",
            retry={"attempts": 2},
            timeout="1 min",
        ),
        Step("names", script="state.name", each=Each(NAMES, as_="name"), store="names"),
        Step("range", script="state.i", each=Each(range(3), as_="i"), store="range"),
        Step("listed", script="1", each=[1, 2], store="listed"),
        Step("made", script="1", each=COUNTS, store="made", seconds=None),
        Step("end", script="state.grown", store="result", next=[("last", "$(state.names)"), Edge("other")]),
        Step("last", script="1", end=True, catch=["other"], rollback=None),
        Step("other", script="1"),
    ]


inputs: list[Mapping[str, Any]] = [{"name": "n", "type": "integer", "default": 3}]
flow = Workflow("loops", steps(ROWS), inputs=inputs, outputs=["result"])
other = Workflow("asks", [Step("a", ask=Ask("Go?", kind="confirmation", expires_in="1 h")), Step("b", ask="Name?")])
third = Workflow(
    "rolls",
    [Step("a", action="Rows.Grow", rollback=Rollback("Rows.Undo"), catch=Catch("b")), Step("b", "wait", seconds="1 s")],
)

if __name__ == "__main__":
    with Environment(store="memory:", workflows=[flow, other, third], actions=[grow, undo]) as environment:
        run = environment.start(flow)
        grown: list[Row] = run.result()
        assert grown == [{"name": "a", "size": 3}, {"name": "b", "size": 4}], grown
        assert len(run.items) >= 2

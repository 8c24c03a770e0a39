"""divebook.map over frames of all libraries, with functions, workflows and agents."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import pandas as pd
import polars as pl

import divebook
from divebook import Agent, Environment, Retry, ScriptedModel, Step, Workflow, step
from divebook.mapping import MappedRows


@dataclass
class Mark:
    good: bool


@step
def size(text: str) -> int:
    return len(text)


def label(text: str, suffix: str = "") -> dict[str, str]:
    if text == "bad":
        raise ValueError(text)
    return {"label": text + suffix}


async def later(text: str) -> str:
    return text.upper()


class Model:
    def predict(self, text: str) -> float:
        return float(len(text))


one = Workflow("one", [Step("s", script="inputs.text", store="n")], inputs=["text"], outputs=["n"])
critic = Agent("critic", output=Mark, model=ScriptedModel(['{"good": true}'] * 3))

if __name__ == "__main__":
    from divebook.notebook.session import open_session

    open_session("memory:")
    frame = pd.DataFrame({"text": ["a", "bad"]})
    labels = divebook.map(frame, label, store="labels", parallel=2, retry=Retry(1), timeout=timedelta(seconds=9))
    assert_type(labels, MappedRows)
    assert_type(labels.wait("20 s").frame, pd.DataFrame)
    assert_type(labels.failed, pd.DataFrame)
    count: int = labels.done
    assert count == len(labels) == 2
    again = labels.retry_failed(unknown=True).wait(timeout=20)
    assert len(again.failed) == 1
    run: divebook.Run = labels.run
    assert run.status == "completed"
    assert divebook.map(pl.DataFrame({"text": ["x"]}), later, parameters=None).wait().frame["result"].tolist() == ["X"]
    rows: list[dict[str, str]] = [{"text": "q"}]
    assert divebook.map(rows, size).wait().frame["result"].tolist() == [1]
    assert divebook.map(rows, Model().predict, store="predicted").wait().frame["result"].tolist() == [1.0]
    assert divebook.map(({"text": "t"},), later, store="tuple").wait().frame["result"].tolist() == ["T"]
    assert divebook.map(rows, one).wait().frame["n"].tolist() == ["q"]
    marks = divebook.map(frame, critic, prompt="Good? ${state.row.text}", bounds={"max_cost": 2.5}, store="marks")
    assert marks.wait().frame["good"].tolist() == [True, True]
    with Environment(store="memory:") as environment:
        other: Any = divebook.map(rows, label, environment=environment, parameters={"suffix": "!"}).wait().frame
        assert other["label"].tolist() == ["q!"]

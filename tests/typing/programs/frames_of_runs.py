"""DataFrames of one run, of many runs, and the list of runs."""

import pandas as pd

from divebook import Environment, Step, Workflow, frames

one = Workflow("one", [Step("s", script="1", store="n")], outputs=["n"])

if __name__ == "__main__":
    with Environment(store="memory:", workflows=[one]) as environment:
        run = environment.start("one").wait()
        events: pd.DataFrame = run.events
        steps: pd.DataFrame = run.steps
        assert len(events) > len(steps) == 1
        table = frames(environment, columns={"n": "variables.n"})
        executions: pd.DataFrame = table.executions
        assert list(executions["n"]) == [1]

"""Replay, verification, provenance, fork and what-if of a recorded run."""

from divebook import Environment, Run, Step, Workflow
from divebook.replay import Comparison, Inspection, LogWalk, Verification, WhatIf

double = Workflow("double", [Step("work", script="2 * inputs.n", store="m")], inputs=["n"], outputs=["m"])

if __name__ == "__main__":
    with Environment(store="memory:", workflows=[double]) as environment:
        run = environment.start("double", {"n": 2}).wait()
        walk: LogWalk = run.replay()
        inspection: Inspection = run.inspect()
        verification: Verification = run.verify()
        assert verification.equal
        other: Run = environment.start("double", {"n": 3}).wait()
        comparison: Comparison = run.compare(other)
        assert comparison.first is not None
        copy: Run = run.fork()
        assert copy.wait().outputs == {"m": 4}
        rehearsal: WhatIf = run.what_if()
        assert str(rehearsal)
        assert str(inspection)
        assert walk is not None

"""Forks, what-ifs, plans, repeated what-ifs, trials and new definitions."""

from typing import assert_type

from divebook import Context, Environment, Run, Step, Workflow, step, workflow
from divebook.replay import Plan, RepeatedWhatIf, ResumePlan, StepTrial, WhatIf


@step(idempotent=True)
def double(n: int) -> int:
    return 2 * n


@workflow
async def chain(ctx: Context, n: int) -> int:
    return await double(await double(n))


flow = Workflow("flow", [Step("a", script="inputs.n + 1", store="m")], inputs=["n"], outputs=["m"])


def changed(present: Workflow) -> Workflow:
    return present


if __name__ == "__main__":
    with Environment(store="memory:", workflows=[flow]) as environment:
        run = environment.start(chain, {"n": 1}).wait()
        copy = run.fork(change={"inputs": {"n": 5}}, tags=["copy"])
        assert_type(copy, Run[int])
        assert copy.result() == 20
        assert_type(run.again(), Run[int])
        assert run.again().result() == 4
        assert_type(run.run_again(), Run[int])
        plan: ResumePlan = run.run_again(plan=True)
        assert str(plan)
        what = run.what_if({"inputs": {"n": 2}}, tools="live")
        assert_type(what, WhatIf)
        result: object = what.outputs["result"]
        assert result == 8
        saved: int = what.served
        assert saved >= 0 and what.cost == 0
        repeated = run.what_if({"inputs": {"n": 2}}, repeat=2, tools="live")
        assert_type(repeated, RepeatedWhatIf)
        assert [each.outputs["result"] for each in repeated] == [8, 8]
        assert_type(run.what_if(plan=True), Plan)
        single = environment.start("flow", {"n": 1}).wait()
        trial = single.try_step("a", {"Script": "inputs.n + 2"}, times=2, inputs={"n": 5})
        assert_type(trial, StepTrial)
        assert len(trial.frame()) >= 2
        assert single.try_step("a", changed) is not None
        verified: bool = bool(single.verify(any_code=True))
        assert verified
        assert_type(run.resume(), Run[int])
        assert_type(run.refresh(), Run[int])
        assert_type(run.tag("a").note("b").label(c=1).untag("a"), Run[int])

"""What the catalogue of events promises is in the log, in its own words, where code did it, and once."""

from datetime import datetime

from divebook import Each, Environment, Step, Workflow
from divebook.analysis.log import items_frame
from divebook.definitions import workflow
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import run

SCRIPT = "import time, random\n[time.time(), random.random()]"


def said(execution, event_type):
    return [event.data.to_data() for event in execution.history() if event.event_type == event_type]


def test_a_script_that_reads_the_clock_and_uses_chance_says_so():
    execution = run(Workflow("w", [Step("s", script=SCRIPT, store="seen")]))
    (time,) = said(execution, "time_accessed")
    assert datetime.fromisoformat(time["value"]).timestamp() == execution.variables["seen"][0]
    assert time["accessed_at"] == time["value"]
    (chance,) = said(execution, "random_generated")
    assert (chance["method"], chance["value"]) == ("seed", chance["seed"])


def test_a_function_says_what_it_read_and_decided_once_however_often_it_runs():
    @workflow(name="saying")
    async def saying(ctx):
        return [(await ctx.now()).isoformat(), await ctx.random(), await ctx.version("more", 1, 2)]

    execution = Environment(store=MemoryStore()).start("saying").wait(20)
    last = next(event.sequence for event in execution.history() if event.event_type == "version_decision")
    again = Environment(store=cut(execution.store, execution, last)).run_of(execution.id).resume().wait(20)
    for each in (execution, again):
        moment, chance, version = each.outputs["result"]
        assert said(each, "time_accessed") == [{"accessed_at": moment, "value": moment}]
        assert said(each, "random_generated") == [{"method": "float", "value": chance}]
        assert said(each, "version_decision") == [
            {"change_id": "more", "version": version, "min_version": 1, "max_version": 2}
        ]


def test_each_of_a_mapping_keeps_its_keys():
    steps = [Step("s", script="item * 2", each=Each("$({'a': 1, 'b': 2})", as_="item"), store="out")]
    execution = run(Workflow("w", steps))
    assert execution.variables["out"] == [2, 4]
    assert [data["item_key"] for data in said(execution, "iteration_started")] == ["a", "b"]
    assert [data["item_key"] for data in said(execution, "iteration_completed")] == ["a", "b"]
    assert items_frame(execution.history()).key.tolist() == ["a", "b"]

"""What lists say of executions, and that no log is read twice for it."""

from divebook import Each, ScriptedModel, Step, Workflow
from divebook.agents import Agent
from divebook.projections.summary import VERSION, Overview, Summary, Summing
from divebook.stores import MemoryStore, SqliteStore
from tests.runtime.worlds import Gate, environment

PATIENCE = 30


class CountingStore(MemoryStore):
    """A store that knows whose logs were read."""

    def __init__(self):
        super().__init__()
        self.looked_at = []

    def history(self, execution_id, after=0):
        self.looked_at.append((execution_id, after))
        return super().history(execution_id, after)


def line_of(world, execution):
    (line,) = Overview(world.store).lines([world.store.record(execution.id)])
    return line


def test_a_line_says_what_failed_where_and_what_is_kept():
    world = environment()
    items = Step("parse", script="{1: 'a', 2: 'b'}[row]", each=Each("$(inputs.rows)", "row"))
    failed = world.start(Workflow("label", [items], inputs=["rows"]), {"rows": [1, 2, 3]}).wait(PATIENCE)
    line = line_of(world, failed)
    assert (line.status, line.stand) == ("failed", "2 of 3 completed")
    assert line.way_on == "continues at step parse (2 of 3 items completed)"
    assert "KeyError: 3" in line.about
    assert line.about == line.error


def test_a_line_counts_the_failures_beside_the_one_that_it_names():
    world = environment()

    def finished(rows, *then):
        each = Each("$(inputs.rows)", "row", on_item_error="skip")
        flow = Workflow("label", [Step("parse", script="1 // row", each=each), *then], inputs=["rows"])
        return line_of(world, world.start(flow, {"rows": rows}).wait(PATIENCE))

    failed = finished([0, 1, 0], Step("calc", script="1 // 0"))
    assert failed.about == f"{failed.error} and 2 more"
    item = finished([0, 1], Step("again", script="1 // row", each=Each("$(inputs.rows)", "row")))
    assert "rows[0]" in item.error
    assert item.about == f"{item.error} and 1 more"
    done = finished([0, 1, 0])
    assert (done.status, done.stand, done.error) == ("completed", "2 items failed", "")


def test_a_line_says_what_was_given_what_it_cost_and_how_long_it_worked():
    agent = Agent("writer", model=ScriptedModel(["Yes."], price=0.25))
    world = environment(agents=[agent])
    flow = Workflow("ask", [Step("s", agent="writer", prompt="Is it?")], inputs=["topic", "rows"])
    done = world.start(flow, {"topic": "tides", "rows": [1, 2]}).wait(PATIENCE)
    line = line_of(world, done)
    assert (line.status, line.about, line.price) == ("completed", "topic tides, 2 rows", "$0.25")
    assert line.worked_us(0) == line.worked_us(10**18) is not None


def test_secrets_among_the_inputs_are_in_no_summary():
    world = environment()
    flow = Workflow("w", [Step("s", script="raise ValueError(inputs.password)")], inputs=["password"])
    failed = world.start(flow, {"password": "correct-horse-battery"}).wait(PATIENCE)
    line_of(world, failed)
    kept = world.store.summaries([failed.id])[failed.id].data
    assert b"correct-horse" not in kept
    assert b"redacted" in kept


def test_what_rests_is_read_once_and_kept_for_the_next_process():
    store = CountingStore()
    world = environment(store=store)
    done = [world.start(Workflow("w", [Step("s", script="1")])).wait(PATIENCE) for _ in range(2)]
    first, records = Overview(store), store.records()
    store.looked_at.clear()
    lines = first.lines(records)
    assert sorted(name for name, _ in store.looked_at) == sorted(execution.id for execution in done)
    assert first.lines(records) == lines == Overview(store).lines(records)
    assert len(store.looked_at) == 2


def test_of_what_goes_on_only_the_new_is_read():
    store, gate = CountingStore(), Gate()
    world = environment(actions=[gate.action("Gate")], store=store)
    going = world.start(Workflow("w", [Step("s", script="1"), Step("g", action="Gate"), Step("t", script="2")]))
    gate.reached.wait(PATIENCE)
    overview = Overview(store)
    (line,) = overview.lines([store.record(going.id)])
    assert (line.status, line.stand) == ("running", "at step g")
    gate.opened.set()
    going.wait(PATIENCE)
    store.looked_at.clear()
    (line,) = overview.lines([store.record(going.id)])
    assert line.status == "completed"
    assert [after > 0 for _, after in store.looked_at] == [True]


def test_a_list_in_a_hurry_reads_no_more_than_it_has_time_for():
    world = environment()
    for _ in range(3):
        world.start(Workflow("w", [Step("s", script="1")])).wait(PATIENCE)
    ticks = iter(range(100))
    hurried = Overview(world.store, clock=lambda: next(ticks))
    known = [line.summary is not None for line in hurried.lines(world.store.records(), patience=1.5)]
    assert known == [True, False, False]
    assert all(line.summary for line in hurried.lines(world.store.records()))


def test_a_line_counts_questions_and_says_who_cancelled():
    world = environment()
    asking = world.start(Workflow("w", [Step("s", ask="Which?")])).wait(PATIENCE)
    assert (line_of(world, asking).status, line_of(world, asking).stand) == ("waiting", "1 question")
    cancelled = world.run_of(asking.id).cancel().wait(PATIENCE)
    line = line_of(world, cancelled)
    assert (line.status, line.questions) == ("cancelled", 0)
    assert line.stand.startswith("by ")


def test_a_log_that_cannot_be_read_has_a_line_all_the_same(tmp_path):
    path = tmp_path / "x.db"
    with SqliteStore(path) as store:
        done = environment(store=store).start(Workflow("w", [Step("s", script="1")])).wait(PATIENCE)
        store._writer.execute("UPDATE events SET data = 'x' WHERE place & 255 = 3")
    with SqliteStore(path) as store:
        (line,) = Overview(store).lines(store.records())
    assert (line.id, line.status, line.about) == (done.id, "completed", "")


def test_a_read_only_store_is_listed_though_nothing_can_be_kept(tmp_path, monkeypatch):
    path = tmp_path / "x.db"
    with SqliteStore(path) as store:
        environment(store=store).start(Workflow("w", [Step("s", script="1")], inputs=["n"]), {"n": 7}).wait(PATIENCE)
    monkeypatch.setattr("divebook.stores.sqlite.store.why_read_only", lambda _: "it is on a shelf")
    with SqliteStore(path) as store:
        (line,) = Overview(store).lines(store.records())
        assert store.summaries([line.id]) == {}
    assert line.about == "n 7"


def test_a_summary_of_another_version_is_made_again():
    summary = Summing().summary()
    assert Summary.from_data(summary.to_data()) == summary
    for other in (b"[0]", b"{}", b"nonsense", summary.to_data().replace(b"[%d," % VERSION, b"[99,")):
        assert Summary.from_data(other) is None

"""Formatters hear of steps and questions while executions run."""

from divebook import Each, Environment, Step, Workflow
from divebook.environments import Formatter

FAILING = Workflow(
    "failing",
    [
        Step("list", script="[1, 2]", store="xs"),
        Step("double", each=Each("$(state.xs)", as_="x"), script="x * 2", store="ys"),
        Step("ask", ask="Go on?", store="answer"),
        Step("break", script="1 / 0"),
    ],
)


class Heard(Formatter):
    def __init__(self):
        self.said = []

    def step_started(self, step):
        self.said.append(("begins", step.step, step.type))

    def step_output(self, step, output):
        self.said.append(("output", step.step, output))

    def step_error(self, step, error):
        self.said.append(("error", step.step, error))

    def question(self, execution_id, question):
        self.said.append(("asks", execution_id, question.question))


def test_it_hears_of_steps_their_outputs_errors_and_questions_in_order():
    heard = Heard()
    with Environment(store="memory:", workflows=[FAILING], formatter=heard) as environment:
        execution = environment.start("failing").wait(20)
        environment.answer(execution.open_questions[0].id, "yes").wait(20)
    told = [(what, name) for what, name, _ in heard.said]
    assert told == [
        ("begins", "list"),
        ("output", "list"),
        ("begins", "double"),
        ("output", "double"),
        ("begins", "ask"),
        ("asks", execution.id),
        ("output", "ask"),
        ("begins", "break"),
        ("error", "break"),
    ]
    assert "division" in heard.said[-1][2]
    assert heard.said[0][2] == "script"


def test_one_that_raises_stops_nothing():
    class Broken(Formatter):
        def step_started(self, step):
            raise RuntimeError("not today")

    with Environment(store="memory:", formatter=Broken()) as environment:
        assert environment.start(Workflow("w", [Step("a", script="1")])).wait(20).status == "completed"


def test_one_hears_nothing_after_its_environment_is_closed():
    heard = Heard()
    environment = Environment(store="memory:")
    with Environment(store=environment.store, formatter=heard):
        pass
    environment.start(Workflow("w", [Step("a", script="1")])).wait(20)
    assert heard.said == []

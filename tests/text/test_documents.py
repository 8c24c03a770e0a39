"""Secrets are hidden by the names of their fields, also where a value is shown as a JSON text."""

import json

import pytest
from typer.testing import CliRunner

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, workflow
from divebook.cli.main import app
from divebook.definitions.definition import InputDefinition
from divebook.text.redaction import Redactor

SECRETS = ("q7x", "tapir-one", "tapir-two", "48213377", "ibex-deep-1", "newt-tuple-3")
NESTED = {
    "short": {"token": "q7x"},
    "list": {"passwords": ["tapir-one", "tapir-two"]},
    "number": {"db": {"password": 48213377}},
    "deep": {"secret": {"x": "ibex-deep-1"}},
    "tuple": ["a", {"api_key": "newt-tuple-3"}],
}


@workflow
async def nested(ctx):
    return NESTED


def file_search(settings: dict) -> dict:
    """Search for files."""
    return settings


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_text_is_redacted_by_the_names_in_it(indent):
    redactor = Redactor()
    clean = redactor.document(json.dumps(NESTED, indent=indent))
    assert not [secret for secret in SECRETS if secret in clean]
    assert json.loads(clean) == redactor.value(NESTED)
    assert ("\n" in clean) == (indent is not None)


@pytest.mark.parametrize(
    "text", ['{"a": 1,  "b": [2]}', "[not json", "{", "[" * 100_000, '{"n": NaN}', "[redacted]", "plain"]
)
def test_a_text_without_secrets_stays_as_it_is(text):
    assert Redactor().document(text) == text


def test_no_part_of_a_report_shows_a_nested_secret(tmp_path):
    store = str(tmp_path / "runs.db")
    turns = [[{"call": {"file_search": {"settings": NESTED}}}, json.dumps(NESTED)]]
    agent = Agent("searcher", model=ScriptedModel(turns=turns), tools=[file_search])
    steps = [Step("search", agent="searcher", prompt="Search."), Step("ask", ask="Go on?")]
    asking = Workflow("asking", steps, inputs=[InputDefinition("cfg")])
    with Environment(store=store, agents=[agent]) as environment:
        runs = [environment.start(nested).wait(20), environment.start(asking, {"cfg": NESTED}).wait(20)]
        texts = [str(run) for run in runs]
        runs[1].answer(runs[1].open_questions[0].id, json.dumps(NESTED))
        texts.append(str(runs[1].wait(20)))
        copied = Workflow("copied", [Step("copy", script="inputs.cfg")], inputs=[InputDefinition("cfg")])
        runs.append(environment.start(copied, {"cfg": NESTED}).wait(20))
        for run in runs:
            for options in ([], ["--json"]):
                printed = CliRunner().invoke(app, ["show", run.id, "--store", store, *options])
                assert printed.exit_code == 0, printed.output
                texts.append(printed.stdout)
        for text in texts:
            assert "[redacted]" in text
            assert not [secret for secret in SECRETS if secret in text], text
        shown = CliRunner().invoke(app, ["show", runs[2].id, "--store", store, "--json", "--show-secrets"]).stdout
        hidden = CliRunner().invoke(app, ["show", runs[2].id, "--store", store, "--json"]).stdout
        assert json.loads(json.loads(shown)["last_output"]["copy"]) == NESTED
        assert json.loads(json.loads(hidden)["last_output"]["copy"]) == Redactor().value(NESTED)

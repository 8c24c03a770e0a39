"""`divebook try`: what it prints, what it keeps, and what it says of a trial that cannot be."""

import json

from divebook.definitions.reader import read_definitions
from divebook.stores import open_store
from tests.cli.conftest import write

POET = """
Agents: [{Name: poet, Model: scripted}]
Workflows:
  - Name: roses
    Steps: [{Name: count, Script: 3, Store: n}, {Name: draft, Agent: poet, Prompt: "${state.n} roses", Store: line}]
"""


def test_a_step_is_tried_and_kept_in_a_file(divebook, folder):
    file = write(folder / "roses.yaml", POET)
    divebook("run", file)
    source = open_store().records()[0].execution_id
    keys = write(folder / "keys.yaml", "Prompt: ${state.n} white roses\n")
    told = divebook(
        "try", "draft", source, "-d", file, "--times", 2, "--set", "n=4", "--keys", keys, "--keep", "kept.yaml"
    )
    assert told.exit_code == 0, told.output
    assert "2 tries" in told.stdout
    assert "[-3-]{+4 white+} roses" in told.stdout
    (kept,) = read_definitions((folder / "kept.yaml").read_text()).workflows
    assert kept.step("draft").prompt == "${state.n} white roses"
    assert [record.origin for record in open_store().records()] == ["trial", "trial", "run"]
    facts = json.loads(divebook("try", "draft", source, "-d", file, "--set", "n=4", "--json").stdout)
    assert (facts["step"], facts["recorded"]["asked"], facts["tries"][0]["asked"]) == ("draft", "3 roses", "4 roses")
    again = divebook("try", "draft", source, "-d", file, "--keep", "kept.yaml")
    assert again.exit_code == 2
    assert "kept.yaml exists already" in again.stderr


def test_a_trial_that_cannot_be_says_what_to_do(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    source = open_store().records()[0].execution_id
    for line, told in (
        (("try", "great", source), "did you mean 'greet'?"),
        (("try", "greet", source, "--times", "0"), "a trial must run its step at least once"),
        (("try", "greet", "exec_none"), "execution not found: exec_none"),
    ):
        refused = divebook(*line)
        assert refused.exit_code == 2, refused.output
        assert told in refused.stderr.replace("\n", " ")
    file = write(folder / "roses.yaml", POET)
    divebook("run", file)
    refused = divebook("try", "draft", open_store().records()[0].execution_id)
    assert "name the file that defines them with -d FILE or --actions" in refused.stderr.replace("\n", " ")
    failed = write(folder / "bad.yaml", "Script: 1 / 0\n")
    assert divebook("try", "greet", source, "--keys", failed).exit_code == 1

import runpy

import pytest

from divebook.stores import open_store


def test_why_tells_where_a_value_came_from(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    name = open_store().records()[0].execution_id
    told = divebook("why", "greeting", name)
    assert told.exit_code == 0
    assert told.stdout.splitlines()[0] == 'greeting = "hello you hello you": step greet at event 6 (script)'
    assert divebook("why", "greeting", name, "--form", "mermaid").stdout.startswith("flowchart LR\n")
    assert divebook("why", "greting", name).exit_code == 2


def test_inspect_tells_what_the_end_waited_for(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    told = divebook("inspect", open_store().records()[0].execution_id)
    assert told.exit_code == 0
    assert told.stdout.startswith("hello took ")
    assert "activities on the critical path:" in told.stdout


def test_verify_compares_logs_with_definitions_and_exits_with_1_where_one_differs(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    name = open_store().records()[0].execution_id
    told = divebook("verify", name)
    assert told.exit_code == 0, told.output
    assert f"{name} of 'hello': equal" in told.stdout
    assert "0 calls made" in told.stdout
    assert divebook("verify", "--all").exit_code == 0
    changed = folder / "changed.yaml"
    changed.write_text(hello.read_text().replace("hello ", "goodbye "))
    for line in (("verify", name, "-d", str(changed)), ("verify", "-d", str(changed), "--all")):
        told = divebook(*line)
        assert told.exit_code == 1, told.output
        assert "differs" in told.stdout
    assert divebook("verify").exit_code == 0
    assert divebook("verify", name, "--all").exit_code == 2


def test_a_run_becomes_a_test_that_reads_the_definition_where_it_is(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    name = open_store().records()[0].execution_id
    told = divebook("to-test", name, "-d", hello, "--to", "test_it.py")
    assert told.exit_code == 0, told.output
    assert "python -m pytest test_it.py" in told.stderr
    check = runpy.run_path(str(folder / "test_it.py"))["test_hello_does_what_its_log_says"]
    check()
    hello.write_text(hello.read_text().replace("hello ", "goodbye "))
    with pytest.raises(AssertionError, match="step 'greet'"):
        check()
    assert divebook("to-test", name, "--to", "test_it.py").exit_code != 0
    assert divebook("to-test", name, "--to", "test_it.py", "--force").exit_code == 0
    runpy.run_path(str(folder / "test_it.py"))["test_hello_does_what_its_log_says"]()


def test_without_a_run_the_newest_run_of_a_workflow_of_the_file_is_taken(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    (folder / "other.yaml").write_text("Workflows: [{Name: other, Steps: [{Name: s, Script: '1'}]}]")
    assert divebook("to-test", "-d", "other.yaml").exit_code != 0
    divebook("run", "other.yaml")
    other, greeted = (record.execution_id for record in open_store().records())
    told = divebook("to-test", "-d", hello)
    assert told.exit_code == 0, told.output
    assert (folder / "test_hello.py").exists()
    assert f"{greeted} of 'hello': equal" in divebook("verify", "-d", hello).stdout
    refused = divebook("to-test", other, "-d", hello)
    assert refused.exit_code != 0
    assert "does not define other, the workflow of the run; it defines hello" in refused.stderr
    (folder / "third.yaml").write_text("Workflows: [{Name: third, Steps: [{Name: s, Script: '1'}]}]")
    refused = divebook("to-test", "-d", "third.yaml")
    assert refused.exit_code != 0
    assert (
        "there is no run of the workflows of third.yaml (third); the store has runs of hello, other" in refused.stderr
    )

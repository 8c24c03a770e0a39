from divebook.store import open_store


def test_why_tells_where_a_value_came_from(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    name = open_store().records()[0].execution_id
    told = divebook("why", name, "greeting")
    assert told.exit_code == 0
    assert told.stdout.splitlines()[0] == 'greeting = "hello you hello you": step greet at event 6 (script)'
    assert divebook("why", name, "greeting", "--form", "mermaid").stdout.startswith("flowchart LR\n")
    assert divebook("why", name, "greting").exit_code == 2


def test_inspect_tells_what_the_end_waited_for(divebook, folder, hello):
    divebook("run", hello, "-v", "who=you")
    told = divebook("inspect", open_store().records()[0].execution_id)
    assert told.exit_code == 0
    assert told.stdout.startswith("hello took ")
    assert "what the end waited for:" in told.stdout

"""A function for each row of a frame, and the functions of the notebook session."""

import divebook
from divebook import Environment, Run, Step, Workflow, step


@step
def size(text: str) -> int:
    return len(text)


one = Workflow("one", [Step("s", script="1", store="n")], outputs=["n"])

if __name__ == "__main__":
    from divebook.notebook.session import open_session

    open_session("memory:")
    environment: Environment = divebook.environment()
    environment.add_workflow(one)
    run: Run = divebook.run("one").wait()
    assert run.outputs == {"n": 1}
    assert divebook.runs()[0].id == run.id
    assert len(divebook.inbox()) == 0
    assert divebook.show(run.id).id == run.id

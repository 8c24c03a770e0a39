"""The first cells of a notebook from JupyterLab's launcher run as they are, without a key or a network."""

from divebook.commands.tutorial import FIRST_CELLS


def test_the_first_cells_run_up_to_their_question(cell):
    *defining, running = FIRST_CELLS
    for text in defining:
        cell(text)
    run, _ = cell(f"{running}\nrun")
    assert run.status == "waiting"
    assert [question.question for question in run.open_questions] == ["Keep this text?"]
    assert run.variables["text"]

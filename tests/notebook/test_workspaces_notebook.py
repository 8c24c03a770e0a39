"""The fifth notebook runs as a new user would run it: an agent changes files, two of three are taken over."""

import re

import nbformat
import pytest

from tests.notebook.books import NOTEBOOKS, executed_in, shown

NOTEBOOK = NOTEBOOKS / "05_workspaces.ipynb"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run it where a run before this one has left its files."""
    folder = tmp_path_factory.mktemp("workspaces")
    for left in ("roman/CHANGES.md", "roman-before/README.md", "roman-before/CHANGES.md"):
        (folder / left).parent.mkdir(exist_ok=True)
        (folder / left).write_text("- `to_roman` knows IV, IX, XL, XC, CD and CM.\n")
    return executed_in(folder, NOTEBOOK.name)


def test_the_tests_of_the_package_fail_at_first_and_pass_in_the_end(executed):
    assert "FAILED (failures=1, errors=1)" in shown(executed, "from pathlib import Path")
    tests = [cell for cell in executed[0].cells if cell.source.startswith("!cd roman")]
    after_two_of_three, in_the_end = (cell.outputs[0]["text"] for cell in tests)
    assert "FAILED (errors=1)" in after_two_of_three
    assert in_the_end.strip() == "OK"


def test_two_of_three_files_are_taken_over(executed):
    told = shown(executed, "for question in run.open_questions")
    assert "added CHANGES.md +1 -0\nchanged roman.py +4 -1\nchanged test_roman.py +1 -1\n" in told
    assert "{'written': ['CHANGES.md', 'roman.py'], 'there': [], 'left': ['test_roman.py']}" in told
    assert '"xvi"' in (executed[1] / "roman" / "test_roman.py").read_text()


def test_the_difference_of_a_file_is_shown_as_git_does(executed):
    assert '+        self.assertEqual([from_roman(text) for text in ("XVI",)], [16])' in shown(executed, "%dive diff")
    assert "3 files changed (+6 -2)" in shown(executed, "%dive files")


def test_a_fork_begins_with_the_files_as_they_were(executed):
    told = shown(executed, "for question in fork.open_questions")
    assert told == "['CHANGES.md', 'roman.py']\n\n{'written': ['roman.py'], 'there': ['CHANGES.md'], 'left': []}"
    compared = shown(executed, "run.compare(fork)")
    assert "\nFirst difference: " in compared
    assert re.search(r"\(event \d+ of A, event \d+ of B\)\n", compared)
    assert "prompt: Make all other tests pass.{+ Leave the tests as they are.+}" in compared


def test_the_files_of_any_event_can_be_had_again(executed):
    assert shown(executed, "restored = files.restore").startswith('3 files; NUMERALS = {"M": 1000')


def test_saved_outputs_are_those_of_the_cells():
    saved = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)

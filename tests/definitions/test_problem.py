"""How a problem reads."""

from divebook.errors import Problem


def test_a_problem_in_a_text_gives_line_and_column():
    problem = Problem("unknown key 'Promt'", 3, 5, "Promt", hint="did you mean 'Prompt'?")
    assert problem.describe("cell") == "cell:3:5: unknown key 'Promt' (did you mean 'Prompt'?)"


def test_a_problem_outside_of_a_text_gives_its_place():
    problem = Problem("no script", place=("Script",)).below("Steps", 2)
    assert problem.describe("w") == "w at Steps[2].Script: no script"
    assert Problem("empty").describe("w") == "w: empty"


def test_a_warning_says_so():
    assert Problem("doubtful", 1, 2, severity="warning").describe("cell") == "cell:1:2: warning: doubtful"

"""What an error means is said where that is sure, and nothing is said otherwise."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.projections.failures import meaning
from divebook.steps.actions import Action

KEY = "The key 'b' does not exist in the mapping that was read."
MODULE = (
    "Python does not find the module foo.bar. Install the package that contains it (%pip install ...), then continue."
)
NO_FILE = "[Errno 2] No such file or directory: "
NONE = "A value is None, but the code expected another value."
MANY = str(dict.fromkeys(range(10, 20)))
JSON = "The text is empty, or it is not JSON."
CASES = [
    ("KeyError", "KeyError: 'b'", {"x": "{'a': 1, 'c': 2}"}, "y = x['b']", "x has no key 'b'. It has: a, c."),
    ("KeyError", "'b'", {"x": "{}"}, 'x["b"]', "x has no key 'b'. It is empty."),
    ("KeyError", "7", {"x": MANY}, "x[7]", "x has no key 7. It has: 10, 11, 12, 13, 14, 15, 16, 17 and 2 more."),
    ("KeyError", "'b'", {"x": "{'b': 1}"}, "x['b']", KEY),
    ("KeyError", "'b'", {"x": "{'a': ... 3 more"}, "x['b']", KEY),
    ("KeyError", "'b'", {}, 'raise KeyError("b")', ""),
    ("KeyError", "'b'", {}, "", ""),
    ("KeyError", "look here", {}, "", ""),
    ("ZeroDivisionError", "division by zero", {"row": "0"}, "10 // row", "A number was divided by zero: row is 0."),
    ("ZeroDivisionError", "division by zero", {"row": "0"}, "row / 0", "A number was divided by zero."),
    ("ModuleNotFoundError", "No module named 'foo.bar'", {}, "", MODULE),
    (
        "FileNotFoundError",
        f"{NO_FILE}'a.csv'",
        {},
        "",
        "There is no file or folder 'a.csv' in the working directory of the call.",
    ),
    ("FileNotFoundError", f"{NO_FILE}'/a.csv'", {}, "", "There is no file or folder '/a.csv'."),
    ("AttributeError", "'NoneType' object has no attribute 'x'", {}, "", NONE),
    ("TypeError", "'NoneType' object is not subscriptable", {}, "", NONE),
    ("IndexError", "list index out of range", {}, "", "The sequence has fewer elements than the index requires."),
    ("JSONDecodeError", "Expecting value: line 1 column 1 (char 0)", {}, "", JSON),
    ("TimeoutError", "", {}, "", "No answer came in time. Continue the run to try again."),
    ("ValueError", "bad", {}, "", ""),
    ("", "no such agent", {}, "", ""),
]


@pytest.mark.parametrize(("error_type", "message", "given", "line", "said"), CASES)
def test_an_error_is_explained_by_its_message_and_by_what_was_given(error_type, message, given, line, said):
    assert meaning(error_type, message, given, line) == said


def test_text_of_a_log_is_read_and_never_run():
    assert meaning("KeyError", "__import__('os').abort()", {"x": "__import__('os').abort()"}, "x['b']") == ""


def test_a_failure_says_what_it_means_among_its_details():
    flow = Workflow("w", [Step("s", action="pick", parameters={"answer": {"kind": "bill"}})])
    world = Environment(store="memory:", actions=[Action("pick", lambda answer: answer["label"])])
    failure = world.start(flow).wait(20).failure
    assert failure.means == "answer has no key 'label'. It has: kind."
    assert failure.details.startswith(f"means: {failure.means}\nwhere: step s")

"""What a command has printed is shown as a terminal shows it."""

import pytest

from divebook.text.format import printed


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"stdout": "a\nb\n", "stderr": "", "exit_code": 0}, "a\nb\n[exit 0]"),
        ({"stdout": "", "stderr": "no\n", "return_code": 3}, "no\n[exit 3]"),
        ({"stdout": "", "stderr": "", "return_code": -9}, "[exit -9]"),
        ({"stdout": "begun", "stderr": "", "return_code": 1, "error": "ended after 5 s"}, "begun\nended after 5 s"),
        ({"stdout": "\x1b[31mred\x1b[0m \x1b]0;title\x07x\r\n", "stderr": "", "exit_code": 0}, "red x\n[exit 0]"),
        ({"stdout": " 10%\r 50%\r100%\ndone\n", "stderr": "", "exit_code": 0}, "100%\ndone\n[exit 0]"),
        (
            {"stdout": "long", "stdout_file_path": "/tmp/o.log", "stderr": "", "return_code": 0},
            "long\n[all of stdout: /tmp/o.log]\n[exit 0]",
        ),
    ],
)
def test_what_was_printed_stands_as_in_a_terminal_with_how_it_ended(value, told):
    assert printed(value) == told


@pytest.mark.parametrize(
    "value",
    [
        "text",
        None,
        ["stdout", "stderr"],
        {"stdout": "a", "stderr": "b"},
        {"stdout": 1, "stderr": "", "exit_code": 0},
        {"stdout": "", "stderr": "", "exit_code": "0"},
        {"stdout": "", "exit_code": 0},
    ],
)
def test_what_is_no_result_of_a_command_is_left_as_it_is(value):
    assert printed(value) is None

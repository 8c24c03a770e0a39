"""The types of the browser half are those of the Python half."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
GENERATE = runpy.run_path(str(ROOT / "widgets" / "generate.py"))


def test_every_generated_type_has_a_form():
    """The protocol module also imports classes that are not enumerations, such as errors. No type is made of them."""
    assert "= ;" not in GENERATE["typescript"](GENERATE["sources"]())


def test_the_generated_types_are_up_to_date():
    generated = (ROOT / "widgets" / "src" / "protocol.ts").read_text(encoding="utf-8")
    assert generated == GENERATE["typescript"](GENERATE["sources"]()), "run python widgets/generate.py"


def test_the_generated_styles_are_up_to_date():
    generated = (ROOT / "widgets" / "src" / "shared" / "colours.css").read_text(encoding="utf-8")
    assert generated == GENERATE["styles"](), "run python widgets/generate.py"


def test_docstrings_and_unions_come_along():
    source = 'class A(TypedDict):\n    """One."""\n\n    x: list[int] | None\n    """Two."""\n'
    assert GENERATE["typescript"]([source]).endswith(
        "\n/** One. */\nexport interface A {\n  /** Two. */\n  x: number[] | null;\n}\n"
    )


def test_a_type_that_typescript_cannot_be_told_is_named():
    with pytest.raises(TypeError, match=r"set\[int\]"):
        GENERATE["typescript"](["class A(TypedDict):\n    x: set[int]\n"])

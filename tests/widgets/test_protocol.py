"""The types of the browser half are those of the Python half."""

import json
import re
import runpy
from pathlib import Path

import pytest

from divebook.widgets.recording import DEFAULTS

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


def test_the_generated_constants_are_up_to_date():
    generated = (ROOT / "widgets" / "src" / "constants.ts").read_text(encoding="utf-8")
    assert generated == GENERATE["constants"](), "run python widgets/generate.py"


def test_the_generated_checks_are_up_to_date():
    generated = (ROOT / "widgets" / "src" / "checks.ts").read_text(encoding="utf-8")
    assert generated == GENERATE["checks"](), "run python widgets/generate.py"


def test_a_type_without_a_check_is_named():
    with pytest.raises(TypeError, match="set"):
        GENERATE["_check"](set[int], {}, {})


def test_every_limit_and_default_is_of_a_field_that_is_saved():
    """A limit or default of a field that has another name now would be lost silently."""
    checks = GENERATE["checks"]()
    fields = {
        f"{kind}.{field}"
        for kind, body in re.findall(r"check(\w+) = objectOf\(\{\n(.*?)\n\}", checks, re.DOTALL)
        for field in re.findall(r"^  (\w+): ", body, re.MULTILINE)
    }
    assert set(GENERATE["LIMITS"]) <= fields
    assert {f"{kind}.{field}" for kind, values in DEFAULTS.items() for field in values} <= fields


def words_of(value):
    """Yield the texts in a constant."""
    if isinstance(value, str):
        yield value
    for part in value if isinstance(value, list | dict) else ():
        yield from words_of(part)


def test_no_constant_of_python_is_written_a_second_time_in_typescript():
    """A second spelling would stay behind if Python changes. Words of protocol types are exempt: `tsc` checks them."""
    source = ROOT / "widgets" / "src"
    values = re.findall(r"^export const \w+ = (.*) as const;", GENERATE["constants"](), re.MULTILINE)
    types = (source / "protocol.ts").read_text(encoding="utf-8")
    # Only words that mean nothing else: "done" and "run" are also ordinary words.
    words = {word for value in values for word in words_of(json.loads(value)) if re.search(r"\w[_/. ]\w", word)}
    words = {word for word in words if f'"{word}"' not in types}
    assert "agent_response" in words
    texts = {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in source.rglob("*.ts")}
    repeated = [
        (name, word)
        for name, text in texts.items()
        for word in words
        if name not in ("constants.ts", "protocol.ts") and re.search(rf"""["'`]{re.escape(word)}["'`]""", text)
    ]
    assert repeated == [], "import it from constants.ts, which is generated from Python"


ONE_PLACE = {
    r"\borNull\(": ({"checks.ts", "lab/check.ts"}, "checks of saved data are generated from the protocol"),
    r"raised_us - |raised_us < |raised_us > ": ({"shared/order.ts"}, "questions have one order"),
    r"TextDecoder\(|DecompressionStream\(": ({"shared/unpack.ts"}, "data is unpacked up to a limit"),
}
"""What only some files of the front end may contain, by pattern: the files, and the reason."""


@pytest.mark.parametrize("pattern", ONE_PLACE)
def test_a_rule_stands_in_one_place(pattern):
    source = ROOT / "widgets" / "src"
    allowed, reason = ONE_PLACE[pattern]
    texts = {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in source.rglob("*.ts")}
    assert {name for name, text in texts.items() if re.search(pattern, text)} == allowed, reason


def test_questions_are_ordered_by_their_own_rule():
    """`Question.order` is the order everywhere: by time alone, questions of one microsecond would change places."""
    wrong = re.compile(r"key=lambda \w+: [^\n]*raised_us")
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "divebook").rglob("*.py")}
    found = {name for name, path in files.items() if wrong.search(path.read_text(encoding="utf-8"))}
    # Closed questions are ordered by the time of their answers.
    assert found == {"divebook/analysis/run_report.py", "divebook/pipeline/envelope/envelope.py"}


def test_docstrings_and_unions_come_along():
    source = 'class A(TypedDict):\n    """One."""\n\n    x: list[int] | None\n    """Two."""\n'
    assert GENERATE["typescript"]([source]).endswith(
        "\n/** One. */\nexport interface A {\n  /** Two. */\n  x: number[] | null;\n}\n"
    )


def test_a_type_that_typescript_cannot_be_told_is_named():
    with pytest.raises(TypeError, match=r"set\[int\]"):
        GENERATE["typescript"](["class A(TypedDict):\n    x: set[int]\n"])

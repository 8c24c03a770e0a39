"""Rules that exist in Python and in TypeScript: one table of cases for both sides (``widgets/test/cases``)."""

import json
import re
from pathlib import Path

import pytest

from divebook.analysis.timeline import layout
from divebook.definitions.json_schemas import FITTING, complaint
from divebook.engine.approvals import exactly
from divebook.projections.spans import Span
from divebook.questions import Question, checked_answer
from divebook.questions.question import RESOURCE_EXHAUSTED, for_others
from divebook.report.html import _lines_of_patch
from divebook.stores.embedded import checksum, whole_texts, with_texts
from divebook.text.format import NOTHING, branch_name, parts, plural, price, printed, seconds, visible
from divebook.text.redaction import cut, one_line
from divebook.widgets.recording import RecordedPositions, read_saved
from divebook.widgets.runs_and_questions import order_of_entry
from divebook.widgets.source import question_of

CASES = Path(__file__).parents[2] / "widgets" / "test" / "cases"


def cases_of(name, *rules):
    """Return the cases in a file as parameters of a test: the rule, the input and the result that Python must have."""
    table = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return [
        pytest.param(rule, case["input"], case["python"] if "python" in case else case["expected"], id=case["name"])
        for rule, cases in table.items()
        for case in cases
        if not rules or rule in rules
    ]


def test_each_case_has_one_result_or_two_with_a_reason():
    cases = [
        case for path in CASES.glob("*.json") for cases in json.loads(path.read_bytes()).values() for case in cases
    ]
    keys = {frozenset(case) for case in cases}
    assert keys <= {
        frozenset({"name", "input", "expected"}),
        frozenset({"name", "input", "python", "typescript", "reason"}),
    }
    assert [case["name"] for case in cases if "reason" in case and case["python"] == case["typescript"]] == []


def test_every_table_is_read_by_both_sides():
    """A table that one side does not read proves nothing."""
    own = Path(__file__).read_text(encoding="utf-8")
    tables = {path.stem for path in CASES.glob("*.json")}
    assert {name for name in tables if f'cases_of("{name}"' not in own} == set()
    assert {path.name.removesuffix(".test.ts") for path in CASES.glob("*.test.ts")} == tables


# --- texts -----------------------------------------------------------------------------------------------------------


def as_in_a_terminal(text):
    return printed({"stdout": text, "stderr": "", "exit_code": 0}).removesuffix("[exit 0]").removesuffix("\n")


def kinds_of_lines(patch):
    """Return how the lines of a patch are shown, by their HTML elements."""
    kinds = {"<del": "went", "<ins": "came", "<spa": "soft"}
    return [kinds.get(line[:4], "same") for line in _lines_of_patch(patch.removesuffix("\n").split("\n"))]


TEXT_RULES = {
    "duration": lambda micros: seconds(micros / 1e6),
    "price": price,
    "plural": lambda given: plural(*given),
    "branch": branch_name,
    "visible": visible,
    "terminal": as_in_a_terminal,
    "oneLine": lambda given: one_line(*given),
    "cut": lambda given: cut(*given),
    "patch": kinds_of_lines,
}


@pytest.mark.parametrize(("rule", "given", "expected"), cases_of("texts"))
def test_texts(rule, given, expected):
    assert TEXT_RULES[rule](given) == expected


# --- questions -------------------------------------------------------------------------------------------------------


def ids_in_order(questions):
    """Return the ids of questions in their order, which must be the same for the form that views show."""
    known = [Question(id=name, kind="clarification", question="?", raised_us=raised) for raised, name in questions]
    entries = [{"question": question_of(question, "w")} for question in known]
    ids = [question.id for question in sorted(known, key=lambda question: question.order)]
    assert [entry["question"]["interrupt_id"] for entry in sorted(entries, key=order_of_entry)] == ids
    return ids


def raised(data):
    question = Question(id="ask_1", kind=RESOURCE_EXHAUSTED, question="?", data=data)
    return checked_answer(question, "raise", FITTING, now=0)["data"]["to"]


QUESTION_RULES = {
    "order": ids_in_order,
    "shared": lambda given: for_others(Question(id="ask_1", kind=given[0], question="?"), given[1]),
    "raised": raised,
    "exactly": exactly,
}


@pytest.mark.parametrize(("rule", "given", "expected"), cases_of("questions"))
def test_questions(rule, given, expected):
    assert QUESTION_RULES[rule](given) == expected


# --- values for JSON schemas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("_rule", "given", "fits"), cases_of("schemas"))
def test_values_fit_their_schemas(_rule, given, fits):
    assert (complaint(*given) is None) is fits


def test_a_form_refuses_nothing_that_the_kernel_accepts():
    """The one exception is a number that a browser cannot send."""
    cases = json.loads((CASES / "schemas.json").read_text(encoding="utf-8"))["fits"]
    refused = [case["name"] for case in cases if case.get("python") is True and case["typescript"] is False]
    assert refused == ["a number that is too large to be sent"]


# --- differences of two values ---------------------------------------------------------------------------------------


def kind_of(part):
    if part.before is NOTHING:
        return "added"
    return "removed" if part.after is NOTHING else "changed"


@pytest.mark.parametrize(("_rule", "given", "expected"), cases_of("differences"))
def test_differences(_rule, given, expected):
    # Python writes "a[1].b", and the front end "a.1.b".
    found = [[re.sub(r"\[(\d+)\]", r".\1", part.place), kind_of(part)] for part in parts(*given)]
    assert found == expected


# --- lanes of a timeline ---------------------------------------------------------------------------------------------


def lanes_of(rows):
    """Return the lanes of some spans from top to bottom: the name of each, and the id and row of each of its bars."""
    spans = [
        Span(
            row.get("kind", "operation"),
            row.get("path", "main"),
            "s",
            1,
            row.get("type", "prompt"),
            row["start"],
            row.get("end"),
            "completed" if "end" in row else "running",
            iteration=row.get("iteration"),
            called=row.get("label"),
            index=number,
            holder=row.get("within", -1),
        )
        for number, row in enumerate(rows)
    ]
    lanes = layout(spans).lanes
    return [
        [branch_name(lane.path) or lane.path, sorted([bar.span.index, bar.row] for bar in lane.bars)] for lane in lanes
    ]


@pytest.mark.parametrize(("_rule", "rows", "expected"), cases_of("lanes"))
def test_lanes(_rule, rows, expected):
    assert lanes_of(rows) == expected


# --- states and messages of a recording ------------------------------------------------------------------------------

EMPTY = {"sequence": 0, "status": "", "error": "", "usage": {}, "inputs": {}, "outputs": {}, "variables": {}}
EMPTY |= {"paths": [], "pending": []}


def recorded(changes, base=EMPTY, **parts):
    events = {"sequence": [*range(1, len(changes) + 1)]}
    return RecordedPositions({"base": base, "changes": changes, "events": events, **parts})


@pytest.mark.parametrize(
    ("given", "expected"), [pytest.param(*case.values[1:], id=case.id) for case in cases_of("states", "states")]
)
def test_states(given, expected):
    positions = recorded(given["changes"], {**EMPTY, **given["base"]})
    states = [positions.state_at(sequence) for sequence in range(len(given["changes"]) + 1)]
    assert len(states) == len(expected)
    for state, part in zip(states, expected, strict=True):
        assert [*state["variables"]] == part.get("order", [*state["variables"]])
        assert state == {**state, **{name: value for name, value in part.items() if name != "order"}}


def test_a_recording_of_the_first_version_is_read_by_both_sides():
    """``widgets/test/lab/decode.test.ts`` reads the same file, in which many of the present fields are missing."""
    fixture = json.loads((CASES.parent / "lab" / "saved.json").read_text(encoding="utf-8"))
    positions = RecordedPositions(read_saved(fixture["saved"])[1])
    assert [positions.state_at(sequence) for sequence in range(positions.total + 1)] == fixture["states"]


def message(kind, text):
    return {"kind": kind, "text": text, "call": ""}


def conversation_of(requests):
    return {
        "requests": [
            {
                "id": number,
                "number": number + 1,
                "instructions": request.get("instructions", ""),
                "sent": [message("user", text) for text in request["sent"]],
                "answer": [message("assistant", request["answer"])] if "answer" in request else [],
            }
            for number, request in enumerate(requests)
        ],
        "calls": [
            {"request": number + 1, "tool": tool, "arguments": arguments, "result": result, "outcome": result}
            for number, request in enumerate(requests)
            for tool, arguments, result in request.get("calls", ())
        ],
    }


@pytest.mark.parametrize(
    ("given", "expected"), [pytest.param(*case.values[1:], id=case.id) for case in cases_of("states", "messages")]
)
def test_messages(given, expected):
    requests = given["requests"]
    spans = {"names": ["agent_response"], "type": [0] * len(requests), "id": [*range(len(requests))]}
    spans["sequence"] = [request["sequences"][0] for request in requests]
    positions = recorded(
        [[] for _ in range(9)],
        spans=spans,
        members=[request["sequences"] for request in requests],
        conversations=[conversation_of(requests)],
    )
    _, found = positions.said_at(given["at"])
    assert [f"{part['kind']} {part['text']}" for part in found] == expected


# --- parts of a page -------------------------------------------------------------------------------------------------


def resolved(given):
    try:
        return with_texts(given["value"], whole_texts(given["table"]))
    except (ValueError, IndexError, TypeError):
        return "refused"


PART_RULES = {"checksum": checksum, "texts": resolved}


@pytest.mark.parametrize(("rule", "given", "expected"), cases_of("parts"))
def test_parts(rule, given, expected):
    assert PART_RULES[rule](given) == expected

"""Pages: what is opened is the run that was written, a changed byte is found, and a long run stays small."""

import json
import random
from dataclasses import dataclass

import pytest

from divebook import Environment, Step, Workflow, allow
from divebook.errors import InvalidEventError, StoreError
from divebook.export.page import page_of, write_page
from divebook.replay.replayer import Positions
from divebook.stores import MemoryStore, transfer
from divebook.stores.embedded import LOG, RUN, TEXTS, LongTexts, embedded_parts_of, whole_texts, with_texts
from divebook.widgets.recording import RecordedPositions, checked_recording, checked_run
from divebook.widgets.stepping import SteppedLog
from tests.export.shared_runs import asking, ended, failing, many

FRAMES = ("events", "operations", "model_calls", "messages", "steps", "items", "questions")
MOST = 1_500_000


@pytest.fixture
def environment():
    with Environment(store=MemoryStore()) as made:
        yield made


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return a run with a bit of everything, and its page."""
    run = asking()
    return run, write_page(run, tmp_path_factory.mktemp("page") / "run.html")


def view_of(page):
    carried = embedded_parts_of(page)
    run = with_texts(carried.data(RUN), whole_texts(carried.data(TEXTS)))
    assert carried.fault == ""
    return checked_run(run), checked_recording(run["view"])


@dataclass
class Size:
    name: str


def test_values_of_classes_are_written_also_with_texts_beyond_ascii(environment, tmp_path):
    allow(Size)
    inputs = {"x": Size("größe" * 9)}
    run = environment.start(Workflow("w", [Step("s", script="1")], inputs=["x"]), inputs).wait()
    assert environment.open(run.to_html(tmp_path / "run.html")).inputs == inputs


@pytest.mark.parametrize("make", [asking, failing, lambda: many(60, 90)], ids=["asking", "failing", "many"])
def test_what_is_opened_has_the_events_and_frames_of_what_was_written(make, environment, tmp_path):
    run = make()
    opened = environment.open(run.to_html(tmp_path / "run.html"))
    assert [*opened.history()] == [*run.history()]
    assert (opened.status, opened.outputs, opened.error) == (run.status, run.outputs, run.error)
    for frame in FRAMES:
        assert getattr(opened, frame).equals(getattr(run, frame)), frame
    assert environment.store.records() == []  # the store stays as it is


def test_the_page_has_the_state_at_every_event(told):
    run, page = told
    recorded, positions = RecordedPositions(view_of(page)[1]), SteppedLog(Positions.of(run.history()))
    assert recorded.total == positions.total
    for sequence in range(positions.total + 1):
        assert recorded.state_at(sequence) == positions.state_at(sequence)


def test_what_had_not_ended_is_a_snapshot(environment, tmp_path):
    waiting = ended(Workflow("asks", [Step("ask", ask="Well?")]))
    opened = environment.open(waiting.to_html(tmp_path / "run.html"))
    assert (waiting.status, opened.status) == ("waiting", "snapshot")
    assert [*opened.history()][1:-1] == [*waiting.history()][1:]


def test_the_log_can_be_left_out(told, environment, tmp_path):
    run, page = told
    bare = run.to_html(tmp_path / "bare.html", log=False)
    assert LOG in embedded_parts_of(page).parts
    assert LOG not in embedded_parts_of(bare).parts
    assert view_of(bare)[1]["events"] == view_of(page)[1]["events"]
    with pytest.raises(InvalidEventError, match=r"bare\.html contains no log; open it in a browser or a notebook"):
        environment.open(bare)


def test_a_file_that_is_there_is_not_overwritten_unless_asked_to(told, tmp_path):
    run, _ = told
    page = tmp_path / "run.html"
    page.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        run.to_html(page)
    assert page.read_text() == "mine"
    run.to_html(page, overwrite=True)
    assert transfer.read(page).events == [*run.history()]


def test_a_page_that_mail_gave_other_ends_of_lines_is_sound(told, tmp_path):
    run, page = told
    changed = tmp_path / "mailed.html"
    changed.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    assert transfer.read(changed).events == [*run.history()]


def test_each_of_two_thousand_flipped_bytes_is_found(told, tmp_path):
    """Of the whole page: its last line is a checksum of all bytes before it, and covers itself by its form."""
    _, page = told
    content, rng, changed = page.read_bytes(), random.Random(3), tmp_path / "changed.html"
    transfer.read(page)
    missed = []
    places = [*rng.sample(range(len(content)), 1900), *range(len(content) - 100, len(content))]
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= rng.randrange(1, 256)
        changed.write_bytes(flipped)
        try:
            transfer.read(changed)
            missed.append(place)
        except InvalidEventError as error:
            assert "changed.html" in str(error)  # noqa: PT017 - of each
    assert (len(places), missed) == (2000, [])


def test_a_page_that_is_damaged_elsewhere_gives_its_log_and_says_so(told, tmp_path):
    run, page = told
    changed = tmp_path / "changed.html"
    changed.write_bytes(page.read_bytes().replace(b"<title>", b"<TITLE>"))
    log, fault = transfer.read_sound(changed)
    assert log.events == [*run.history()]
    assert "the parts that contain the run are unchanged" in str(fault)
    changed.write_bytes(page.read_bytes().replace(b'data-name="log"', b'data-name="lag"'))
    log, fault = transfer.read_sound(changed)
    assert log.events == []
    assert "was changed: the checksum of the page is" in str(fault)


def test_ten_thousand_events_of_400_bytes_are_at_most_a_megabyte_and_a_half(tmp_path):
    """Trap 25: a text stands in several events, and in the document of all answers; the log is there, nothing cut."""
    run = many(10_000, 400)
    page = run.to_html(tmp_path / "run.html")
    saved, recording = view_of(page)
    assert run.state.last_sequence >= 10_000
    assert (recording["sample"], len(recording["data"])) == ("", run.state.last_sequence)
    assert saved["texts"] >= 400
    assert page.stat().st_size <= MOST
    assert transfer.read(page).events == [*run.history()]


def test_what_is_longer_is_cut_in_the_view_and_whole_in_the_log(monkeypatch, environment, tmp_path):
    monkeypatch.setattr("divebook.export.page.MAX_SHOWN", 9_000)
    run = ended(Workflow("long", [Step("a", script="[str(n * 7919 % 10007) for n in range(4000)]", store="found")]))
    page = run.to_html(tmp_path / "run.html")
    assert len(json.dumps(view_of(page)[1]["data"])) < 10_000
    assert environment.open(page).variables == run.variables


def test_hostile_texts_are_no_markup():
    name = '</title><script>x</script> "&'
    page = page_of(run := ended(Workflow(name, [Step("a", script="1")])), run.history(), log=True, known_secrets=())
    assert b"<script>x" not in page
    assert page.count(b"</script>") == 5  # of the parts and of the first script


@pytest.mark.parametrize(
    "value",
    [
        ["\x7f", "\x7f1", "\x7f'", "x" * 24, "\x7f" + "y" * 30, ""],
        {
            "a": [
                "one long line of a text\nand the next of it\n",
                "one long line of a text",
                "# all: one long line of a text",
            ]
        },
        [
            "# item: what one model wrote here\n\nand what another wrote here\n",
            "what one model wrote here",
            1,
            None,
            1.5,
        ],
        ["\n" * 40, "# " + "a" * 70 + ": b\n", "é" * 30 + "\n" + "é" * 30],
    ],
)
def test_texts_come_back_as_they_were(value):
    texts = LongTexts(value)
    assert with_texts(texts.without(value), whole_texts(texts.listed)) == value
    more = [value, "another text that is long enough", "x" * 24]
    own = LongTexts(more, texts)
    listed = whole_texts(own.listed, whole_texts(texts.listed))
    assert with_texts(own.without(more), listed) == more


def test_a_document_of_all_answers_costs_little():
    answers = [random.Random(n).randbytes(150).hex() for n in range(100)]
    document = "".join(f"# item: {answer}\n\n{answer}\n\n" for answer in answers)
    texts = LongTexts([*answers, document])
    assert sum(len(json.dumps(text)) for text in texts.listed) < 1.3 * sum(map(len, answers))

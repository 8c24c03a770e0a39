"""300 credentials and 1,000 harmless texts: how many are missed, and how many are hidden without need."""

import json

from divebook.text.redaction import Redactor
from tests.planted import values
from tests.text.harmless import harmless
from tests.text.shapes import shapes

SEEDS = (1, 2)


def test_at_most_two_in_a_hundred_credentials_are_missed(counted):
    missed = [what for seed in SEEDS for what, text, secret in shapes(seed) if _is_seen(secret, Redactor().text(text))]
    total = sum(len(shapes(seed)) for seed in SEEDS)
    counted(f"{len(missed)} of {total} credentials are missed: {missed}")
    assert total >= 600
    assert len(missed) <= total * 0.02, missed


def test_as_few_are_missed_at_the_beginning_of_a_line_that_is_escaped(counted):
    written = [("repr", repr), ("JSON", json.dumps), ("JSON in JSON", lambda text: json.dumps(json.dumps(text)))]
    missed = [
        (form, what)
        for form, write in written
        for what, text, secret in shapes(SEEDS[0])
        if _is_seen(secret, Redactor().text(write(f"it said\n{text}\nand\t{text}\r")))
    ]
    counted(
        f"{len(missed)} of {3 * len(shapes(SEEDS[0]))} credentials are missed where their lines are escaped: {missed}"
    )
    assert len(missed) <= 3 * len(shapes(SEEDS[0])) * 0.02, missed


def test_at_most_one_in_a_hundred_harmless_texts_is_touched(counted):
    redactor = Redactor()
    touched = [text for seed in SEEDS for text in harmless(seed) if redactor.text(text) != text]
    counted(f"{len(touched)} of 2,000 harmless texts are touched: {touched}")
    assert len(touched) <= 20, touched


def test_harmless_texts_are_stored_as_they_are_whatever_is_named():
    redactor = Redactor()
    for secret in values().values():
        redactor.know(secret)
    texts = [text for seed in SEEDS for text in harmless(seed)]
    assert redactor.without_named(texts) == texts


def test_what_is_clean_stays_as_it_is():
    redactor = Redactor()
    for _, text, _ in shapes():
        clean = redactor.text(text)
        assert redactor.text(clean) == clean


def _is_seen(secret, text):
    """Whether a secret, its beginning or its end can still be read."""
    return secret[-12:] in text or (len(secret) > 24 and secret[:20] in text)

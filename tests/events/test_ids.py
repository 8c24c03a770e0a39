"""Identifiers sort by time and are what other readers of TypeIDs expect."""

import uuid

from divebook.events.event import type_id

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def decoded(identifier):
    number = 0
    for letter in identifier.rpartition("_")[2]:
        number = number * 32 + ALPHABET.index(letter)
    return uuid.UUID(int=number)


def test_an_id_is_a_uuid_of_version_7_with_its_milliseconds():
    found = decoded(type_id("exec", 1_732_181_712_345, 2**74 - 1))
    assert (found.version, found.variant, found.int >> 80) == (7, uuid.RFC_4122, 1_732_181_712_345)


def test_ids_sort_by_time():
    assert type_id("event", 1000, 2**74 - 1) < type_id("event", 1001, 0)


def test_every_random_bit_counts():
    assert len({type_id("event", 1, 1 << bit) for bit in range(74)}) == 74


def test_the_form_is_prefix_and_26_letters():
    prefix, _, letters = type_id("exec", 1_732_181_712_345, 12345).partition("_")
    assert (prefix, len(letters)) == ("exec", 26)
    assert set(letters) <= set(ALPHABET)

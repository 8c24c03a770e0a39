"""What a log can hold."""

import math
import os
import struct
import subprocess
import sys
from collections import Counter, OrderedDict, UserList, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from divebook.errors import UnopenableValueError, UnstorableValueError
from divebook.events.codec import (
    MAX_PAYLOAD_BYTES,
    by_hash,
    canonical_hash,
    decode,
    digest_of,
    encode,
    encode_all,
    encode_parts,
    encode_shown,
    storable,
)
from divebook.events.recorded import opened
from divebook.events.values import normalize


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, "x", None, True]},
        2**80,
        -(2**70),
        b"\x00\xff",
        datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - naive ones are kept naive
        date(2026, 1, 2),
        time(3, 4, 5, 6),
        timedelta(days=2, microseconds=3),
        Decimal("1.10"),
        math.inf,
        -math.inf,
        {"$type": "int", "value": "not ours"},
        {"deep": {"$type": {"$type": 1}}},
    ],
)
def test_values_come_back_as_they_were(value):
    back = decode(encode(normalize({"value": value})))["value"]
    assert back == value
    assert str(back) == str(value)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "value",
    [
        (1, (2, [3])),
        {1: "a", "b": 2, None: 3, (1, "x"): 4, date(2026, 1, 2): 5, 2**70: 6, math.inf: 7, b"k": 8, UUID(int=3): 9},
        {True: 1, 2: {3: {4: ()}}},
        {1, "a", (1, 2), (3, 4), None},
        frozenset({(1, frozenset({2})), (3, 4)}),
        Counter("abcab"),
        Counter({1: 2, (1, 2): 3}),
        OrderedDict(b=1, a=2),
        OrderedDict({"$type": 1}),
        defaultdict(list, {"a": [1], 2: [(3,)]}),
        defaultdict(None, {"a": 1}),
        defaultdict(frozenset, {"a": frozenset({1})}),
        defaultdict(deque, {"a": deque([1])}),
        defaultdict(Counter, {"a": Counter("b")}),
        defaultdict(Decimal),
        deque(),
        deque([1, (2, {3: "a"}), deque([4])]),
        deque([1, 2], maxlen=2),
        bytearray(b"\x00\xff"),
        Decimal("sNaN"),
        Decimal("-sNaN77"),
        {"a": Decimal("NaN12"), "b": Decimal("-0E-7"), "c": Decimal("1E+999999"), "d": Decimal("-Infinity")},
        Path("/tmp/x"),
        PurePosixPath("a/b"),
        PureWindowsPath("c:\\a"),
        UUID("12345678-1234-5678-1234-567812345678"),
        Fraction(1, 3),
        1 + 2j,
        complex(-0.0, math.inf),
        ip_address("10.0.0.1"),
        ip_address("fe80::1%eth0"),
        ip_network("10.0.0.0/8"),
        ip_interface("::1/64"),
        range(0, 10**30, 7),
        BERLIN,
        UTC,
        timezone(timedelta(hours=1, microseconds=3)),
        timezone(timedelta(hours=-5), "EST"),
        datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
        datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 30, fold=1),  # noqa: DTZ001
        time(2, 30, fold=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_the_standard_library_come_back_as_the_type_that_they_had(value):
    recorded = normalize({"in": [value]})
    for [again] in (opened(held)["in"] for held in (recorded, decode(encode(recorded)))):
        assert type(again) is type(value)
        # The order of a set depends on that in which it was filled, where two hashes collide.
        assert again == value if isinstance(value, set | frozenset) else repr(again) == repr(value)
        assert getattr(again, "fold", 0) == getattr(value, "fold", 0)
        assert encode(normalize({"in": [again]})) == encode(recorded)


def test_the_two_hours_at_the_end_of_summer_time_stay_an_hour_apart():
    first, second = (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))
    first, second = opened(decode(encode(normalize([first, second]))))
    assert second.astimezone(UTC) - first.astimezone(UTC) == timedelta(hours=1)


def test_a_value_that_this_machine_cannot_open_is_named_and_leaves_the_log_readable():
    recorded = decode(b'{"at":{"$type":"zoned","value":["2026-01-01T00:00:00+01:00","Mars/Base",0]}}')
    assert recorded["at"].plain() == datetime.fromisoformat("2026-01-01T00:00:00+01:00")
    with pytest.raises(UnopenableValueError, match=r"zoned: .*Mars/Base.* cannot be opened on this machine"):
        opened(recorded)
    assert opened(recorded, lenient=True)["at"] is recorded["at"]


@pytest.mark.parametrize(
    "value",
    [
        '{"$type":"zoned","value":[]}',
        '{"$type":"path","value":{}}',
        '{"$type":"range","value":["a"]}',
        '{"$type":"deque","value":{"items":[],"maxlen":-1}}',
        '{"$type":"deque","value":[1]}',
        '{"$type":"bytearray","value":["a"]}',
    ],
)
def test_content_of_another_shape_is_refused_when_it_is_read(value):
    with pytest.raises(ValueError, match="has the wrong format"):
        decode(value)


def test_a_log_cannot_name_a_class_of_its_own_choice():
    recorded = decode(b'{"$type":"path","value":["os.PathLike","x"]}')
    with pytest.raises(UnopenableValueError, match="unknown class"):
        recorded.to_python()


@pytest.mark.parametrize(
    ("value", "as_before"),
    [
        ((1, (2,)), [1, [2]]),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (datetime(2026, 7, 1, tzinfo=BERLIN), datetime.fromisoformat("2026-07-01T00:00:00+02:00")),
        (datetime(2026, 7, 1, fold=1), datetime(2026, 7, 1)),  # noqa: DTZ001
    ],
)
def test_the_hash_is_that_of_the_form_in_which_older_versions_recorded_a_value(value, as_before):
    assert canonical_hash(normalize({"a": value})) == canonical_hash(normalize({"a": as_before}))


def test_equal_sets_have_equal_bytes_in_every_process():
    code = (
        "from divebook.events.codec import *; from divebook.events.values import *; print(encode(normalize({VALUE})))"
    )
    value = "{('a', 1), ('b', 2), ('c', 3), 'x', frozenset({'p', 'q'})}"
    command = [sys.executable, "-c", code.replace("{VALUE}", value)]
    written = {
        subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2", "3")
    }
    assert len(written) == 1


def test_people_and_programs_see_containers_as_json():
    assert encode_shown(normalize({"a": (1, {2}), "m": {1: ("x",)}})) == b'{"a":[1,[2]],"m":{"1":["x"]}}'


def test_a_deque_keeps_its_maximum_length():
    again = opened(decode(encode(normalize(deque([1, 2], maxlen=3)))))
    assert (again, again.maxlen) == (deque([1, 2]), 3)


def test_a_version_of_divebook_refuses_a_kind_of_value_that_it_does_not_know():
    with pytest.raises(ValueError, match="values of type 'heap' are not known to this version of divebook"):
        decode('{"$type":"heap","value":[]}')


def test_not_a_number_comes_back():
    assert math.isnan(decode(encode(normalize([math.nan])))[0])


def test_copies_are_made():
    original = {"rows": [(1, [2])]}
    plain = normalize(original)
    original["rows"][0][1].append(3)
    original["rows"].append(3)
    assert opened(plain) == {"rows": [(1, [2])]}


def test_numpy_scalars_become_numbers():
    numpy = pytest.importorskip("numpy")
    assert normalize([numpy.int64(3), numpy.float64(0.5), numpy.bool_(True)]) == [3, 0.5, True]


Pair = namedtuple("Pair", "a b")  # noqa: PYI024


def no_key():
    """Return a time zone that was read from a file, which has no key."""
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    return ZoneInfo.from_file(BytesIO(b"TZif" + bytes(16) + counts + struct.pack(">lbb", 3600, 0, 0) + b"CET\0"))


class Thing:
    def __repr__(self):
        return "secret"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rows": [1, 2, 3, {"when": Thing()}]}, r"outputs\.rows\[3\]\.when"),
        ({Thing(): "x"}, r"outputs\[secret\] \(the key\): .*Thing is not plain data"),
        ({1: {"a": Thing()}}, r"outputs\[1\]\.a: .*Thing is not plain data"),
        ({"s": {Thing()}}, r"outputs\.s: .*Thing is not plain data"),
        ([(1, Thing())], r"outputs\[0\]\[1\]: .*Thing is not plain data"),
        ([Pair(1, 2)], r"outputs\[0\]: .*Pair is not allowed in logs; allow the class"),
        (defaultdict(lambda: 1), r"outputs: a defaultdict whose factory is not a built-in type; use dict\(value\)"),
        (MappingProxyType({"a": 1}), r"outputs: mappingproxy would be read back as a dict; use dict\(value\)"),
        (UserList([1]), r"outputs: collections\.UserList .*use list\(value\)"),
        ({"when": datetime(2026, 1, 1, tzinfo=no_key())}, r"outputs\.when: .* has no key"),
        ([iter([])], r"outputs\[0\].*use list\(value\)"),
        (["ok", "\ud800"], r"outputs\[1\]: str is not valid UTF-8"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_path_and_a_way_out(value, message):
    with pytest.raises(UnstorableValueError, match=message):
        storable(value, "outputs")


def refusing(error):
    """Return a conversion of values that JSON lacks, which raises an error."""

    def convert(_):
        raise error

    return convert


DATES = [normalize({"at": date(2026, 1, 2)})] * 2


def test_a_value_that_its_conversion_refuses_is_not_written_in_another_form():
    with pytest.raises(UnstorableValueError, match="data"):
        encode_all(DATES, refusing(TypeError("not here")))
    assert encode_all(DATES, str) == [b'{"at":"2026-01-02"}'] * 2
    with pytest.raises(UnstorableValueError, match=r"data\.x: "):
        encode_all([*DATES, {"x": "\ud800"}], str)


@pytest.mark.parametrize("error", [UnstorableValueError("here", "too long"), KeyboardInterrupt()])
def test_an_error_of_a_conversion_that_says_more_is_not_hidden(error):
    for write in (lambda: encode_all(DATES, refusing(error)), lambda: encode_parts(DATES, refusing(error))):
        with pytest.raises(type(error)) as caught:
            write()
        assert caught.value is error


def test_a_value_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(UnstorableValueError, match="does it contain itself"):
        normalize(loop)


def test_a_huge_value_is_refused_with_a_way_out():
    with pytest.raises(UnstorableValueError, match=r"outputs: 67,108,866 bytes .* store the value as a document"):
        storable("x" * MAX_PAYLOAD_BYTES, "outputs")


def test_the_hash_does_not_depend_on_the_order_of_keys():
    assert canonical_hash({"a": 1, "b": [1, 2]}) == canonical_hash({"b": [1, 2], "a": 1})
    assert canonical_hash({"a": 1}) != canonical_hash({"a": "1"})


def test_the_hash_of_what_is_kept_by_its_hash_is_that_of_its_content():
    kept = by_hash({"tools": [1, {"$type": "x"}, b"\x00"]})
    again = decode(encode({"a": kept}))["a"]
    assert (again, digest_of(again)) == (kept, digest_of(kept))
    assert again.to_python() == {"tools": [1, {"$type": "x"}, b"\x00"]}
    assert canonical_hash({"a": kept}) == canonical_hash({"a": again}) != canonical_hash({"a": by_hash({"tools": []})})
    assert str(kept) == "dict of 1, stored by its hash"


def test_what_cannot_be_kept_by_its_hash_is_refused_with_its_place():
    with pytest.raises(UnstorableValueError, match=r"tools\.a"):
        by_hash({"a": object()}, "tools")

"""``divebook keys``."""

import json

from divebook.definitions.schema import TABLES


def test_the_keys_of_one_part_are_listed(divebook):
    result = divebook("keys", "Catch", "--json")
    assert [line["key"] for line in json.loads(result.stdout)["parts"]["Catch"]] == ["Step", "Errors", "Store"]


def test_every_key_of_every_part_is_listed_with_what_it_means(divebook):
    listed = json.loads(divebook("keys", "--json").stdout)["parts"]
    assert {part: [line["key"] for line in lines] for part, lines in listed.items()} == {
        label: [key.name for key in table.keys] for label, table in TABLES.items()
    }
    assert not [line for lines in listed.values() for line in lines if not (line["means"] and line["holds"])]


def test_a_part_is_found_by_its_name_and_by_the_key_that_holds_it(divebook):
    for part in TABLES:
        assert divebook("keys", part).stdout.startswith(f"{part}:\n")
    assert divebook("keys", "Step").stdout == divebook("keys", "steps").stdout


def test_an_unknown_part_is_refused(divebook):
    result = divebook("keys", "Stpe")
    assert result.exit_code == 2
    assert "did you mean 'step'" in result.stderr

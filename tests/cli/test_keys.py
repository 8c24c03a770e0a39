"""``divebook keys``."""

import json


def test_the_keys_of_one_part_are_listed(divebook):
    result = divebook("keys", "Catch", "--json")
    assert [line["key"] for line in json.loads(result.stdout)["Catch"]] == ["Step", "Errors", "Store"]


def test_an_unknown_part_is_refused(divebook):
    result = divebook("keys", "Stpe")
    assert result.exit_code == 2
    assert "did you mean 'step'" in result.stderr

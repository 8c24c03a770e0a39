"""Some of the servers that mean harm; all of them: ``python -m tests.tools.hostile_servers``."""

import pytest

from tests.tools.hostile_servers import WAYS, checked
from tests.tools.servers import hostile_ways

SOME = (
    *("list-wrong-types", "list-deep", "list-same-cursor", "list-null", "call-deep", "call-credential"),
    *("call-asks-often", "call-asks-and-dies", "http-redirect-302"),
    *("init-surrogates", "call-next-id", "call-closes-output", "call-pings-forever", "http-bomb"),
)


@pytest.mark.parametrize("way", SOME)
def test_a_server_that_means_harm_reaches_nothing_and_disturbs_nothing(way):
    assert checked([way]) == {}


def test_there_is_a_way_for_each_entry():
    program = (hostile_ways.PROGRAM).read_text(encoding="utf-8")
    assert len(WAYS) >= 150
    assert not [way for way in WAYS if not way.startswith("http-") and f'"{way}"' not in program]

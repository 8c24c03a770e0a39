"""What the scheduler of a Dask cluster is told by our plugin, without a cluster."""

from types import SimpleNamespace

from divebook.runtime.compute.dask import Claims


def test_a_key_is_given_away_once_and_only_while_its_call_is_wanted(monkeypatch):
    tasks = {"a", "b", "c"}
    claims = Claims(SimpleNamespace(tasks=tasks))
    assert [claims.claim(key) for key in ("a", "a", "gone")] == [True, False, False]
    monkeypatch.setattr("divebook.runtime.compute.dask.MOST_TAKEN", 1)
    tasks.discard("a")
    assert [claims.claim(key) for key in ("b", "b", "a")] == [True, False, False]
    assert claims._granted_keys == {"b"}

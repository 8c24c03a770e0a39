import pytest


def test_an_available_service_lets_the_test_run(require):
    require("arithmetic", 1 + 1 == 2)


def test_an_absent_service_skips_and_says_which(require, monkeypatch):
    monkeypatch.delenv("DIVEBOOK_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="flux capacitor is not available"):
        require("flux capacitor", False)


def test_an_absent_service_fails_where_everything_is_required(require, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_REQUIRE", "all")
    with pytest.raises(pytest.fail.Exception, match="flux capacitor is not available"):
        require("flux capacitor", False)

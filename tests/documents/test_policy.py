"""What a definition may reach is said by whoever runs it."""

import pytest

from divebook.documents import Policy
from divebook.errors import SetupError

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
]
PRIVATE += ["::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"]
PRIVATE += ["64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::"]
PRIVATE += ["::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "fec0::1", "168.63.129.16", "::ffff:168.63.129.16"]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_this_machine_and_of_private_networks_are_refused(address):
    with pytest.raises(SetupError, match=r"private network.*DIVEBOOK_ALLOW=addresses"):
        Policy().address(address, "name")
    Policy("addresses").address(address, "name")


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
)
def test_public_addresses_are_fine(address):
    Policy().address(address, "name")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "a.localhost", "printer.local", "metadata.google.internal", "[::1]", ""]
)
def test_names_of_this_machine_are_refused_unseen(host):
    with pytest.raises(SetupError, match="private network"):
        Policy().host(host)


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001", "017700000001", "10.1", "[::ffff:127.0.0.1]", "0"],
)
def test_an_address_is_known_however_it_is_written(host):
    with pytest.raises(SetupError, match="private network"):
        Policy().host(host)


@pytest.mark.parametrize(
    "host", ["93.184.216.34", "1572395042", "0x5db8d822", "example.com", "1e100.net", "a.b.c.d", "café.example"]
)
def test_what_only_looks_like_one_or_is_public_is_fine(host):
    Policy().host(host)


def test_other_names_are_looked_up_later():
    Policy().host("example.com")


def test_programs_are_started_only_where_that_is_allowed():
    with pytest.raises(SetupError, match=r"programs are not allowed.*--allow programs"):
        Policy().program("run.py")
    Policy("programs").program("run.py")


def test_the_variable_allows_and_nothing_unknown_can_be_allowed(monkeypatch):
    monkeypatch.setenv("DIVEBOOK_ALLOW", "files, programs")
    assert Policy.given("addresses").allowed == {"files", "programs", "addresses"}
    monkeypatch.setenv("DIVEBOOK_ALLOW", "everything")
    with pytest.raises(SetupError, match="'everything' cannot be allowed"):
        Policy.given()

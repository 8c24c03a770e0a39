"""Which errors say that nobody knows whether a call took effect."""

import concurrent.futures
import socket

import httpx
import pytest
import requests
import urllib3.exceptions

from divebook.errors import OutcomeUnknownError
from divebook.runtime.recorder import leaves_outcome_unknown


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        concurrent.futures.TimeoutError(),
        ConnectionResetError(),
        BrokenPipeError(),
        OutcomeUnknownError("who knows"),
        httpx.ReadTimeout("slow"),
        httpx.ReadError("gone"),
        httpx.RemoteProtocolError("hung up"),
        requests.ReadTimeout(),
        requests.ConnectionError(),
        urllib3.exceptions.ProtocolError(),
        urllib3.exceptions.ReadTimeoutError(None, "/", "slow"),
        caused(ValueError("the bank is slow"), TimeoutError()),
        ExceptionGroup("several", [ValueError(), ExceptionGroup("inner", [TimeoutError()])]),
    ],
    ids=repr,
)
def test_it_is_not_known(error):
    assert leaves_outcome_unknown(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        OSError("disk full"),
        ConnectionRefusedError(),
        caused(httpx.ConnectTimeout("slow"), TimeoutError()),
        httpx.ConnectError("refused"),
        httpx.PoolTimeout("busy"),
        requests.ConnectTimeout(),
        socket.gaierror(),
        ExceptionGroup("several", [ValueError(), ConnectionRefusedError()]),
    ],
    ids=repr,
)
def test_it_failed(error):
    assert not leaves_outcome_unknown(error)


def test_errors_that_cause_each_other_are_looked_at_once():
    first = ValueError()
    assert not leaves_outcome_unknown(caused(first, caused(KeyError(), first)))

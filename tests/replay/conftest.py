"""What tests of replay share: the outside that nothing may reach."""

import socket
import subprocess

import pytest


@pytest.fixture
def blocked(monkeypatch):
    """Let nothing reach the outside: sockets, programs, functions of actions and models."""

    def reached(*_, **__):
        raise AssertionError("the outside was reached")

    def block():
        monkeypatch.setattr(socket.socket, "connect", reached)
        monkeypatch.setattr(subprocess.Popen, "__init__", reached)
        monkeypatch.setattr("divebook.runtime.calls.invoke", reached)
        monkeypatch.setattr("divebook.agents.scripted.ScriptedModel.reply", reached)
        monkeypatch.setattr("divebook.agents.scripted.ScriptedModel.reply_to", reached)

    return block

"""After ``%unload_ext divebook``, and at the end of a kernel, no thread, file, socket, task or comm of ours remains."""

import json
import os
import subprocess
import sys

CELLS = """
import json, os, sys, threading, gc
from IPython.core.interactiveshell import InteractiveShell

folder = os.getcwd()
shell = InteractiveShell.instance()

def left():
    files = []
    for name in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    sockets = sum(file.startswith("socket:") for file in files)
    names = sorted(thread.name for thread in threading.enumerate())
    return {"threads": names, "files": [file for file in files if file.startswith(folder)], "sockets": sockets}

def run(text):
    shell.run_cell(text).raise_error()

run("import asyncio; await asyncio.sleep(0)")  # IPython's own loop
before = left()
for _ in range(2):
    run("%load_ext divebook")
    run("from divebook import action\\n@action\\ndef quick(n):\\n    return n")
    run("%%dive\\nAgents: [{Name: a, Goal: talk}]\\nWorkflows:\\n"
        "- {Name: acts, Steps: [{Name: a, Action: quick, Parameters: {n: 1}, Store: b}]}\\n"
        "- {Name: waits, Steps: [{Name: w, Type: wait, Signal: go, Store: got}]}\\n"
        "- {Name: asks, Steps: [{Name: q, Ask: Which one?, Store: it}]}\\n"
        "- {Name: later, Steps: [{Name: t, Type: wait, Seconds: 1000}]}\\n"
        "- {Name: talks, Steps: [{Name: p, Prompt: hi, Store: said}]}")
    for name in ("acts", "waits", "asks", "talks"):
        run(f"{name} = %dive run {name}")
    run("later = %dive run later --background")
    run("seen = waits.view(), acts.replay()")
    during = left()
    run("%unload_ext divebook")
after = left()
sys.__stdout__.write("\\n" + json.dumps([before, during, after]) + "\\n")
"""


def test_unloading_leaves_no_thread_file_or_socket(tmp_path):
    environ = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", CELLS]
    folder = tmp_path / "work"
    folder.mkdir()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, cwd=folder, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    before, during, after = json.loads(done.stdout.splitlines()[-1])
    assert during["files"]
    assert after == before


LEFT = """
import threading
from comm import get_comm_manager
ours = sorted(thread.name for thread in threading.enumerate() if "divebook" in thread.name)
print(ours, len(get_comm_manager().comms))
"""


def test_unloading_closes_the_views_in_a_kernel(kernel):
    kernel.run("%load_ext divebook")
    kernel.run("%%dive workflow waits\nSteps: [{Name: w, Type: wait, Signal: go, Store: got}]")
    kernel.run("%dive run waits --background")
    assert kernel.text(LEFT) != "[] 0\n"
    kernel.run("%unload_ext divebook")
    assert kernel.text(LEFT) == "[] 0\n"

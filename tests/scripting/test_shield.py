"""An interrupt of the process group leaves the sandbox alone."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.mark.skipif(os.name != "posix", reason="signals of process groups are POSIX")
def test_an_interrupt_of_the_group_does_not_end_the_sandbox():
    program = textwrap.dedent("""
        import os, signal
        from divebook.scripting import default_interpreter

        class Interrupting:
            def now(self):
                os.killpg(os.getpgrp(), signal.SIGINT)
                return 42.0

            def printed(self, text):
                pass

        signal.signal(signal.SIGINT, lambda *_: None)
        print(default_interpreter().run_script("import time\\nint(time.time())", {}, Interrupting()))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True, start_new_session=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr

"""A limit on the processor time of code whose cost must stay in proportion to its input."""

import contextlib
import gc
import time


@contextlib.contextmanager
def at_most(seconds):
    """Fail if the block needs more processor time. A limit is far above the usual time and far below the time of a
    faulty algorithm.

    Only this thread counts, and without garbage collection: threads and objects of earlier tests do not matter.
    """
    gc.disable()
    began = time.thread_time()
    try:
        yield
        taken = time.thread_time() - began
    finally:
        gc.enable()
    assert taken < seconds

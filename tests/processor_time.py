"""A limit on the processor time of code whose cost must stay in proportion to its input."""

import contextlib
import gc
import time


@contextlib.contextmanager
def processor_time_at_most(limit_seconds):
    """Fail if the block needs more processor time than `limit_seconds`. Choose a limit far above the usual time and
    far below the time of a faulty algorithm.

    Only this thread counts, and without garbage collection: threads and objects of earlier tests do not matter.
    """
    gc.disable()
    began = time.thread_time()
    try:
        yield
        used_seconds = time.thread_time() - began
    finally:
        gc.enable()
    assert used_seconds < limit_seconds

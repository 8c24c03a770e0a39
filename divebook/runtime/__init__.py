"""Runtime: drivers and runners that execute the instructions of the engine rules and record the results.

This file imports nothing, because a worker process that makes calls for another one needs only a few modules of it.
"""

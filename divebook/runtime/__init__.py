"""Runtime: drivers carry out the decisions of the engine and record the results.

This file imports nothing, because a worker process that makes calls for another one needs only a few modules of it.
"""

"""The drivers: carry out what the rules say, record what happened.

It imports nothing: a process that makes calls for another one needs a few of its modules only.
"""

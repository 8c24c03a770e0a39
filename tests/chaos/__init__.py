"""Processes that do everything at once to the executions of one store, while whatever can go wrong does."""

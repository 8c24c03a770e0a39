"""Pipelines as plain data: their stages, what makes them sound, the order in which they run, and their workflow."""

"""Measurements of divebook against its floor: ``python -m benchmarks``."""

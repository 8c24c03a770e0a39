"""Executors that run functions of users: threads, processes, Dask clusters."""

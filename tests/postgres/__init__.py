"""Stores in Postgres, on a real server."""

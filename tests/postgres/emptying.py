"""Emptying a store in Postgres, sooner than making its tables again."""

import psycopg

from divebook.stores.postgres import PostgresStore
from divebook.stores.postgres.connections import DatabaseAddress
from divebook.stores.postgres.schema import TABLES, named


def emptied(url):
    """Delete all that a store has; return its URL."""
    address = DatabaseAddress.of(url)
    tables = ("executions", "events", "blobs", "workers", "schedules", *TABLES)
    statements = [*(f"DELETE FROM divebook.{table}" for table in tables), "UPDATE divebook.last_message SET number = 0"]
    statement = named("; ".join(statements), address.schema).encode()
    with psycopg.connect(address.conninfo, autocommit=True) as link:
        try:
            link.execute(statement)
        except psycopg.errors.UndefinedTable:
            PostgresStore(url).close()
    return url

"""A map in a process of its own: ``python mapping_in_a_process.py STORE TRACE ROWS SECONDS yes|no``.

Each call writes its row into TRACE, and may be made twice or not. Prints how many rows have what they are to have, how
many an error, and what is asked.
"""

import asyncio
import json
import sys
from pathlib import Path

import pandas as pd

from divebook import Environment
from divebook.mapping import mapped
from divebook.stores import SqliteStore


async def label(n, trace, seconds):
    with Path(trace).open("a", encoding="utf-8") as file:  # noqa: ASYNC230 - one line, at once
        file.write(f"{n}\n")
    await asyncio.sleep(seconds)
    return {"label": n * 2}


def main(store, trace, rows, seconds, idempotent):
    given = {"trace": trace, "seconds": float(seconds)}
    with SqliteStore(store) as opened, Environment(store=opened) as environment:
        frame = pd.DataFrame({"n": range(int(rows))})
        found = mapped(environment, frame, label, parallel=100, idempotent=idempotent == "yes", parameters=given)
        asked = [question.question for question in found.run.wait().open_questions]
        told = found.frame.reindex(columns=["n", "label", "error"])
        right, errors = (told["label"] == told["n"] * 2).sum(), told["error"].notna().sum()
        sys.stdout.write(json.dumps({"rows": int(right), "errors": int(errors), "asked": asked}))


if __name__ == "__main__":
    main(*sys.argv[1:])

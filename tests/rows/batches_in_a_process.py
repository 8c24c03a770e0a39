"""A map by batches in a process of its own: ``python batches_in_a_process.py STORE URL ROWS BATCH``.

Prints how many rows have what they are to have, how many an error, and what is asked.
"""

import json
import sys

import pandas as pd
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from divebook import Agent, Environment, Retry
from divebook.mapping import mapped
from divebook.steps import prompt
from divebook.stores import SqliteStore


def main(store, url, rows, batch):
    prompt.MOST_ROWS = int(batch)
    prompt.CHECKS = Retry(seconds=0.02, factor=1.5, max_seconds=0.1, jitter=0)
    model = OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(base_url=url, api_key="none"))
    frame = pd.DataFrame({"text": [f"text {n}" for n in range(int(rows))]})
    with SqliteStore(store) as opened, Environment(store=opened) as environment:
        found = mapped(environment, frame, Agent("critic", model=model), prompt="${state.row.text}", batch=True)
        asked = [question.question for question in found.run.wait().open_questions]
        told = found.frame.reindex(columns=["text", "result", "error"])
        right, errors = (told["result"] == told["text"].str.upper()).sum(), told["error"].notna().sum()
        sys.stdout.write(json.dumps({"rows": int(right), "errors": int(errors), "asked": asked}))


if __name__ == "__main__":
    main(*sys.argv[1:])

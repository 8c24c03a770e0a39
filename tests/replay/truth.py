"""What `why` says against what changes where one thing is changed."""

from __future__ import annotations

import random
from collections import Counter

from divebook.replay.provenance import why
from tests.replay.generated import changes, ended


def compared(seed: int, most: int | None = None) -> tuple[Counter[str], list[str]]:
    """Return how often what was named, and what had changed without having been named; of at `most` so many changes."""
    source = ended(seed)
    log, before = source.history(), dict(source.state.variables)
    counts, missed = Counter[str](), []
    named, truly = {}, {}
    tried = [*changes(seed)]
    for variable, change in random.Random(seed).sample(tried, min(len(tried), most or len(tried))):
        after = dict(ended(seed, change).state.variables)
        for other in before.keys() | after.keys():
            if other not in named:
                named[other] = {(origin.step, origin.name) for origin in why(log, other).origins}
            key = other, change.step, variable
            truly[key] = truly.get(key, False) or before.get(other, "absent") != after.get(other, "absent")
    for (other, step, variable), is_cause in truly.items():
        is_named = (step, variable) in named[other]
        counts[f"{'changed' if is_cause else 'same'}, {'named' if is_named else 'not named'}"] += 1
        if is_cause and not is_named:
            missed.append(f"seed {seed}: {variable} of step {step or 'the start'} -> {other}")
    return counts, missed

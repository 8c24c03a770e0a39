"""Runs behaviour that is written down as data: ``python -m tests.conformance FILE [--group G ...]``.

`cases` reads a file, `world` runs one case through the public API and notes the `outcome`, `compare` holds
that against what the case expects, `report` prints the differences. All of them know formats, never a single case.

Groups that are written more loosely are run by `loose` and `facts`, as far as they are data; the command lists the
other cases with the reason.

Cases written as steps (of files with a key `dsl`) go to `scenario` instead of `world` and `compare`.

Event lists in case files follow an older catalogue, which never emitted the types in `compare.NEWER_EVENTS`
(``condition_evaluated``, ``iteration_started``, ``iteration_completed``, ``path_waiting``, ``path_joined``,
``path_cancelled``, ``execution_resumed``, ``execution_cancelled``). Events of these types are left out before lists and
counts are compared.

The order of what different paths do is not fixed. Where an execution had more than one path, calls of agents, printed
lines and operations are compared without their order.
"""

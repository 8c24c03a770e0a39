"""What kernel and browser say to each other: one class for each message, in both directions.

``widgets/src/protocol.ts`` is generated from this package by ``python widgets/generate.py``. Every message is sent with
`model.send`, never through a traitlet: front ends deliver messages while a cell is awaited, and hold traitlets back.

A view says `Hello` until it is welcomed, and names the last event it knows of. `Welcome` brings it up to date; spans
that are older than what fits come by `Range`. From then on `Delta` brings what changed, with the numbers of the events
it was made of: a view that finds a gap says `Hello` again. What a person wants carries an id, is sent again until it
is acknowledged, and is done once. From time to time a view says that it is still `Alive`: tabs close without a word.
What only some runs need of the front end does not travel with every widget: a view asks for it by `BundleQuery`.
"""

"""The engine in one thread on virtual time, over a store and steps that go wrong by a seeded plan."""

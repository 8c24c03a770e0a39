"""The test suite; ``python -m tests`` runs it with every other check."""

"""Integration with Jupyter: the magics ``%dive`` and ``%%dive``, the session of a notebook, and the display of runs."""

"""The Python half of the live views; ``static/`` holds the browser half, built from ``widgets/``."""

"""The Jupyter face: magics, the session that they work in, and runs that show themselves."""

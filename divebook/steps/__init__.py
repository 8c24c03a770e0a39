"""One handler per kind of step, and the built-in actions."""

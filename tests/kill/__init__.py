"""A real process that is killed around its writes, and another that takes its execution up."""

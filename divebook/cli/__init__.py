"""The command-line interface: the commands ``divebook`` and ``dev_env``.

Results go to stdout; progress, warnings, what workflows print, and errors go to stderr. One file per group of commands,
brought together in `main`. Rich and the engine are loaded by the commands that use them, so that ``--help`` is instant.
"""

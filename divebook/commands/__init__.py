"""Commands of divebook: each one is declared once, and offered by the shell, by ``%dive`` and as a Python function.

`command` has the declaration, `parameters` the parameters that several commands share, `table` all commands. The other
modules contain the commands, grouped by subject. Loading this package loads neither typer nor the engine, because
``divebook --help`` and completion load all of it.
"""

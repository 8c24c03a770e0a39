"""Python part of the live views of runs. ``static/`` holds the browser part, which is built from the folder
``widgets/``.
"""

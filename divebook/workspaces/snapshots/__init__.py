"""Snapshots of the files of a folder: taking a snapshot, comparing two, restoring one, and applying their differences
to another folder.
"""

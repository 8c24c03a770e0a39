"""Snapshots of the files of a folder: taking, comparing, restoring, and applying them to other folders."""

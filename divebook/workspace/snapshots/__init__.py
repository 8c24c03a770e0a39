"""Snapshots of the files of a folder: taken, compared, restored and applied to other folders."""

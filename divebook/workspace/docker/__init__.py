"""Workspaces in Docker containers: files in a mounted folder, commands inside the container. docker-py loads on first
use.
"""

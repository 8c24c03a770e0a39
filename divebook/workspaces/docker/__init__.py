"""Workspaces in Docker containers: files in a mounted folder, commands in the container. docker-py is loaded lazily."""

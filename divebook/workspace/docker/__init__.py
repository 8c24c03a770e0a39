"""Workspaces in containers: files in a mounted folder, commands through the engine. Its library loads on first use."""

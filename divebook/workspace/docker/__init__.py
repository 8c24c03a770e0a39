"""Workspaces in containers: files on a folder that is mounted, commands by the engine; its library loads when used."""

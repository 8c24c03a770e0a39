"""Development environments from templates: containers, virtual environments and plain folders, with checkpoints."""

from divebook.devenv.manager import DevEnvManager

__all__ = ["DevEnvManager"]

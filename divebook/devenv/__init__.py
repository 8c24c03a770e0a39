"""Development environments that are created from templates: containers, virtual environments and plain folders. Their
state can be saved in checkpoints.
"""

from divebook.devenv.manager import DevEnvManager

__all__ = ["DevEnvManager"]

"""Environments: agents, workflows and settings over one store, and the executions of that store."""

from divebook.environments.environment import Environment
from divebook.projections.spans import Formatter
from divebook.runtime.compute.dask import DaskCluster

__all__ = ["DaskCluster", "Environment", "Formatter"]

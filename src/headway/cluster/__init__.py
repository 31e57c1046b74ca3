"""Observe and apply: brings a cluster up, changes it, takes it down."""

from headway.cluster.apply import apply, plan
from headway.cluster.down import down
from headway.cluster.env import Env, open_env
from headway.cluster.ready import checks

__all__ = ["Env", "apply", "checks", "down", "open_env", "plan"]

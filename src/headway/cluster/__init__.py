"""Observe and apply: brings a cluster up, changes it, takes it down."""

from headway.cluster.apply import apply, plan
from headway.cluster.context import Env, open_env
from headway.cluster.readiness import checks
from headway.cluster.teardown import down

__all__ = ["Env", "apply", "checks", "down", "open_env", "plan"]

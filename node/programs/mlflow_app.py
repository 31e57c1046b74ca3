"""The MLflow server's application, with one addition: a request that creates a run may choose its id, in the header
X-Headway-Run. Jobs choose the ids of their runs themselves, so that they can log while no MLflow server answers.

It is installed next to MLflow, in MLflow's own environment, as headway_mlflow.py (headway.sdk.mlflow_installation)."""

import uuid

from flask import has_request_context, request
from mlflow.server.fastapi_app import app
from mlflow.store.tracking import sqlalchemy_store

__all__ = ["app"]


class ChosenIds:
    """Stands for the module uuid in MLflow's store, which calls uuid4 for the id of a new run alone."""

    def __getattr__(self, name):
        return getattr(uuid, name)

    @staticmethod
    def uuid4():
        """Returns the id that the request chose, else a random one."""
        chosen = request.headers.get("X-Headway-Run") if has_request_context() else None
        return uuid.UUID(chosen) if chosen else uuid.uuid4()


sqlalchemy_store.uuid = ChosenIds()

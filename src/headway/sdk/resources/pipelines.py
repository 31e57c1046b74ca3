"""Pipelines."""

from __future__ import annotations

import builtins

from headway.schemas.submission.pipelines import PipelineIn, PipelineOut, PipelineRetryIn, PipelineScheduleOut
from headway.sdk.connection import Resource, cluster_path


class Pipelines(Resource):
    """Pipelines: jobs that depend on each other."""

    def start(self, cluster: str, request: PipelineIn) -> PipelineOut:
        """Submits every step. Raises Refused with all faults before anything is submitted."""
        return self._connection.post(cluster_path(cluster, "pipelines"), PipelineOut, request, timeout_s=300)

    def list(self, cluster: str) -> builtins.list[PipelineOut]:
        """Returns pipelines, latest first."""
        return self._connection.get_list(cluster_path(cluster, "pipelines"), PipelineOut)

    def get(self, cluster: str, pipeline: str) -> PipelineOut:
        """Returns a pipeline by its id, or the latest of its name."""
        return self._connection.get(cluster_path(cluster, "pipelines", pipeline), PipelineOut)

    def retry(self, cluster: str, pipeline: str, request: PipelineRetryIn) -> PipelineOut:
        """Submits failed steps again, and all steps that depend on them."""
        path = cluster_path(cluster, "pipelines", pipeline, "retry")
        return self._connection.post(path, PipelineOut, request, timeout_s=300)

    def schedule(self, cluster: str, request: PipelineIn) -> PipelineScheduleOut:
        """Starts the pipeline at the times of its `schedule`, and when the dataset of `on` has a new version."""
        return self._connection.post(cluster_path(cluster, "pipeline-schedules"), PipelineScheduleOut, request)

    def schedules(self, cluster: str) -> builtins.list[PipelineScheduleOut]:
        """Returns the scheduled pipelines."""
        return self._connection.get_list(cluster_path(cluster, "pipeline-schedules"), PipelineScheduleOut)

    def unschedule(self, cluster: str, schedule: str) -> PipelineScheduleOut:
        """Deletes a schedule, by its id or the pipeline's name."""
        path = cluster_path(cluster, "pipeline-schedules", schedule)
        return self._connection.parse(PipelineScheduleOut, self._connection.request_json("DELETE", path))

"""Sweeps."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from headway.schemas.submission.run_request import RunOut
from headway.schemas.submission.sweeps import ParameterValue, SweepBestIn, SweepIn, SweepOut, TrialOut, TrialsIn
from headway.sdk.connection import Resource, cluster_path


class Sweeps(Resource):
    """Sweeps: trials of one command with different parameters."""

    def start(self, cluster: str, request: SweepIn) -> SweepOut:
        """Starts a sweep. Raises InvalidSpec and Refused with all faults before anything is submitted."""
        return self._connection.post(cluster_path(cluster, "sweeps"), SweepOut, request)

    def list(self, cluster: str) -> builtins.list[SweepOut]:
        """Returns sweeps, latest first."""
        return self._connection.get_list(cluster_path(cluster, "sweeps"), SweepOut)

    def get(self, cluster: str, sweep: str) -> SweepOut:
        """Returns a sweep by its id, or the latest of its name."""
        return self._connection.get(cluster_path(cluster, "sweeps", sweep), SweepOut)

    def add_trials(
        self, cluster: str, sweep: str, parameters: Sequence[Mapping[str, ParameterValue]]
    ) -> builtins.list[TrialOut]:
        """Adds a trial for each of these parameters to a sweep of `method: manual`. Raises Conflict if it has ended."""
        request = TrialsIn(parameters=[dict(one) for one in parameters])
        answer = self._connection.request_json("POST", cluster_path(cluster, "sweeps", sweep, "trials"), body=request)
        return [self._connection.parse(TrialOut, one) for one in answer]

    def stop(self, cluster: str, sweep: str) -> SweepOut:
        """Begins no further trial, and cancels those that wait or run. Raises Conflict if the sweep has ended."""
        return self._connection.post(cluster_path(cluster, "sweeps", sweep, "stop"), SweepOut)

    def run_best(self, cluster: str, sweep: str, request: SweepBestIn) -> RunOut:
        """Submits the command of the best trial, or of another one, with other resources."""
        return self._connection.post(cluster_path(cluster, "sweeps", sweep, "best"), RunOut, request, timeout_s=300)

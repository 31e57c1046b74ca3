"""The service file reports all faults; a replica is the run of its command with a port."""

from __future__ import annotations

import pytest

from headway.errors import InvalidSpec
from headway.jobs.serving.service_file import Replicas, read_service, replica_run


def test_replicas_are_a_number_or_limits() -> None:
    assert read_service({"name": "a", "run": "x", "replicas": 3}).replicas == Replicas(min=3, max=3)
    assert read_service({"name": "a", "run": "x", "replicas": {"min": 0, "max": 4}}).replicas.min == 0
    assert read_service({"name": "a", "run": "x"}).replicas == Replicas(min=1, max=1)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "Chat"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "v-0123abcd"}, "name"),
        ({"health": "health"}, "health"),
        ({"health": "/a b"}, "health"),
        ({"replicas": {"min": 3, "max": 2}}, "replicas"),
        ({"replicas": 0}, "replicas.max"),
        ({"env": {"OPENAI_API_KEY": "sk-123456789012345678901234"}}, "env.OPENAI_API_KEY"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_faults_name_their_field(change: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_service({"name": "chat", "run": "serve", **change})
    assert [fault.path for fault in caught.value.faults] == [path]


def test_replica_gets_its_port_as_word_and_variable() -> None:
    service = read_service({"name": "chat", "run": "serve --port {port} --model {m}", "gpus": 2, "env": {"A": "1"}})
    run = replica_run(service, 7, path="/serve/red/chat", port=17001)
    assert run.argv == ["serve", "--port", "17001", "--model", "{m}"]
    assert (run.name, run.gpus, run.launcher) == ("chat-7", 2, "python")
    assert run.sbatch == ["--signal=URG@900"], "without it, Slurm would end a preempted replica with SIGTERM"
    assert run.env == {
        "A": "1",
        "HEADWAY_SERVE_PORT": "17001",
        "HEADWAY_SERVE_PATH": "/serve/red/chat",
        "HEADWAY_SERVE_REPLICA": "7",
    }

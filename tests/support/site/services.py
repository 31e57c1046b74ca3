"""A service of alice's in `demo`: one replica serves, one starts, one has failed."""

from __future__ import annotations

import time

from headway.domain.serving.service_figures import ServiceFigures, bucket_of
from headway.domain.serving.service_proxy import ProxyReading, ServerReading, ServiceReading
from headway.jobs.serving.service_file import read_service
from headway.services.app_state import AppState
from headway.services.serving.stored_service import StoredService
from headway.store import ReplicaRow
from headway.store.jobs.service_figures import LastReading

FILE = {
    "name": "chat",
    "run": "vllm serve /datasets/llama-8b --port {port}",
    "replicas": {"min": 2, "max": 4},
    "gpus": 1,
}


async def put(state: AppState) -> None:
    """Stores the service, and what the proxy reports of it."""
    stored = StoredService(read_service(FILE), "m", "", None)
    row = await state.store.services.put(
        "demo", "vision", "chat", person="alice", user="alice", document=stored.document(), least=2, most=4
    )
    now = time.time()
    await state.store.services.log_event("demo", row.id, "1 to 2 replicas: 14 requests run or wait, 8 for each replica")
    await state.store.services.add_replicas(
        [
            ReplicaRow(
                row.id,
                "demo",
                1,
                1,
                17001,
                now,
                now,
                "ended",
                104,
                "demo-1-1",
                "exit code 1",
                failed=True,
                ended_at=now,
            ),
            ReplicaRow(row.id, "demo", 2, 1, 17002, now, now, "serving", 105, "demo-1-1", healthy_at=now),
            ReplicaRow(row.id, "demo", 3, 1, 17003, now, now, "starting", 106, "demo-1-2"),
        ]
    )
    servers = {"r2": ServerReading(True, 3, 1234, "L7OK 200"), "r3": ServerReading(False, 0, 0, "L4CON")}
    reading = ServiceReading(1240, 3, 4, 2, 1, 85, 1920, servers)
    place, slow = bucket_of(0.8), bucket_of(4.0)
    first = {bucket_of(0.09): 1236}
    figures = ServiceFigures(1240, 2, 2, 310_000, 155_000, {place: 1200, slow: 36}, first, first)
    await state.store.service_figures.add("demo", int(now // 60), LastReading("7 1240"), {(row.id, 1): figures})
    state.proxies["demo"] = ProxyReading("10.0.0.10", {row.proxy_name: reading})

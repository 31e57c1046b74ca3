"""GPUs read from dcgm-exporter."""

from __future__ import annotations

import socket
import threading

from agent.gpu import dcgm, gpu_metrics

EXPORTER = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",pci_bus_id="00000000:3B:00.0",device="nvidia1",modelName="NVIDIA H100"} 1755
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",pci_bus_id="00000000:3B:00.0",device="nvidia1",modelName="NVIDIA H100"} 61
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",device="nvidia0",modelName="NVIDIA H100"} 44
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",device="nvidia0",modelName="NVIDIA H100",GPU_I_ID="3"} 99
SOMETHING_ELSE{gpu="1"} 5
"""


def test_dcgm_source_parses_the_exporter_metrics() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ears:

        def answer() -> None:
            link, _ = ears.accept()
            with link:
                link.recv(4096)
                link.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + EXPORTER.encode())

        threading.Thread(target=answer, daemon=True).start()
        first, second = dcgm.Dcgm(ears.getsockname()).read()
    assert (first.index, first.uuid, first.figures) == (0, "GPU-b", {gpu_metrics.TEMP: 44})
    assert (second.index, second.bus, second.figures) == (
        1,
        "00000000:3B:00.0",
        {gpu_metrics.SM_CLOCK: 1755, gpu_metrics.TEMP: 61},
    )

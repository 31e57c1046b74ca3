"""The metrics of a GPU: their names, types and help texts. Every value has the name that dcgm-exporter gives it."""

from __future__ import annotations

UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEM_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
FB_USED = "DCGM_FI_DEV_FB_USED"
FB_FREE = "DCGM_FI_DEV_FB_FREE"
POWER = "DCGM_FI_DEV_POWER_USAGE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
MEM_TEMP = "DCGM_FI_DEV_MEMORY_TEMP"
SM_CLOCK = "DCGM_FI_DEV_SM_CLOCK"
MEM_CLOCK = "DCGM_FI_DEV_MEM_CLOCK"
XID = "DCGM_FI_DEV_XID_ERRORS"
SBE = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
DBE = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
ROWS_BAD = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
ROWS_WEAK = "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"
ROWS_FAILED = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
ROWS_PENDING = "DCGM_FI_DEV_ROW_REMAP_PENDING"
THROTTLE = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"
PCIE_WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH"
PCIE_MAX_WIDTH = "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
PCIE_REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
NVLINK_ERRORS = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"
NVLINKS = "headway_gpu_nvlinks_active"  # DCGM does not count them
PERSISTENCE = "headway_gpu_persistence_mode"

# name -> (Prometheus type, help text)
FIELDS = {
    SM_CLOCK: ("gauge", "SM clock (MHz)"),
    MEM_CLOCK: ("gauge", "Memory clock (MHz)"),
    TEMP: ("gauge", "GPU temperature (C)"),
    MEM_TEMP: ("gauge", "Memory temperature (C)"),
    POWER: ("gauge", "Power draw (W)"),
    ENERGY: ("counter", "Energy since the driver was loaded (mJ)"),
    PCIE_REPLAYS: ("counter", "PCIe retries"),
    PCIE_WIDTH: ("gauge", "PCIe lanes in use"),
    PCIE_MAX_WIDTH: ("gauge", "PCIe lanes there are"),
    UTIL: ("gauge", "GPU utilisation (%)"),
    MEM_UTIL: ("gauge", "Memory utilisation (%)"),
    XID: ("gauge", "The last XID error"),
    FB_FREE: ("gauge", "Free memory (MiB)"),
    FB_USED: ("gauge", "Used memory (MiB)"),
    SBE: ("counter", "Corrected ECC errors since the driver was loaded"),
    DBE: ("counter", "Uncorrected ECC errors since the driver was loaded"),
    ROWS_BAD: ("counter", "Memory rows remapped for uncorrected errors"),
    ROWS_WEAK: ("counter", "Memory rows remapped for corrected errors"),
    ROWS_FAILED: ("gauge", "Whether remapping a memory row failed"),
    ROWS_PENDING: ("gauge", "Whether a memory row is remapped at the next reset"),
    THROTTLE: ("gauge", "Why the clocks are lower than they could be (bits)"),
    NVLINK_ERRORS: ("counter", "NVLink CRC errors"),
    NVLINKS: ("gauge", "NVLinks that are up"),
    PERSISTENCE: ("gauge", "Whether the driver keeps the GPU initialized without a process"),
}

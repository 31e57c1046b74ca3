"""Speeds and memory of GPU types, for sizing: what one GPU computes, holds and exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

_GB = 1e9
_T = 1e12


@dataclass(frozen=True, slots=True)
class GpuType:
    """One GPU. Speeds are of the data sheet, dense (without sparsity): FLOP/s and bytes/s in one direction."""

    name: str  # as jobs name it; a100-40 is the A100 with 40 GB
    product: str
    memory_mib: int  # as nvidia-smi and rocm-smi print it
    memory_bytes_s: float
    peak_flops: MappingProxyType[str, float]  # by precision: fp32 (TF32 where there is one), bf16, fp8, fp4
    matmul_share: float  # largest share of the bf16 peak that a matrix product was measured to reach
    link_bytes_s: float  # to the other GPUs of the machine: NVLink, Infinity Fabric, PCIe
    network_bytes_s: float  # share of one GPU of the machine's network as such machines are usually built
    gpus_of_link: int  # GPUs that the fast link joins
    watts: float
    generation: str  # ampere | ada | hopper | blackwell | cdna3
    source: str
    measured: bool = True  # False: matmul_share is an assumption, because no measurement was found

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a machine as it is usually built; of the 72 GPUs of a rack four are in one."""
        return self.gpus_of_link if self.gpus_of_link <= 8 else 4

    @property
    def memory_bytes(self) -> float:
        """Memory of the GPU in bytes."""
        return self.memory_mib * 1024.0**2


_SHEETS = "https://www.nvidia.com/en-us/data-center/"
# Matrix products: https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md (table of maximum
# achievable matmul FLOPS, bf16): A100 SXM 271.2 of 312, H100 SXM 794.5 of 989, GH200 828.6 of 989, MI300X 668.4 of 1300.


def _peaks(fp32: float, bf16: float, fp8: float = 0, fp4: float = 0) -> MappingProxyType[str, float]:
    found = {"fp32": fp32, "bf16": bf16, "fp8": fp8, "fp4": fp4}
    return MappingProxyType({name: teraflops * _T for name, teraflops in found.items() if teraflops})


_TYPES = (
    GpuType("a100", "A100 SXM 80 GB", 81920, 2039 * _GB, _peaks(156, 312), 0.869, 300 * _GB, 25 * _GB, 8, 400,
            "ampere", _SHEETS + "a100/"),
    GpuType("a100-40", "A100 SXM 40 GB", 40960, 1555 * _GB, _peaks(156, 312), 0.869, 300 * _GB, 25 * _GB, 8, 400,
            "ampere", _SHEETS + "a100/"),
    GpuType("h100", "H100 SXM 80 GB", 81559, 3350 * _GB, _peaks(494.5, 989, 1979), 0.803, 450 * _GB, 50 * _GB, 8, 700,
            "hopper", _SHEETS + "h100/"),
    GpuType("h200", "H200 SXM 141 GB", 143771, 4800 * _GB, _peaks(494.5, 989, 1979), 0.803, 450 * _GB, 50 * _GB, 8, 700,
            "hopper", _SHEETS + "h200/"),
    GpuType("h800", "H800 SXM 80 GB", 81559, 3350 * _GB, _peaks(494.5, 989, 1979), 0.803, 200 * _GB, 50 * _GB, 8, 700, "hopper",
            "https://arxiv.org/abs/2412.19437"),
    GpuType("gh200", "GH200 96 GB", 97871, 4000 * _GB, _peaks(494.5, 989, 1979), 0.836, 100 * _GB, 25 * _GB, 1, 900, "hopper",
            _SHEETS + "grace-hopper-superchip/"),
    GpuType("b200", "B200 SXM 180 GB", 183359, 8000 * _GB, _peaks(1125, 2250, 4500, 9000), 0.75, 900 * _GB, 50 * _GB, 8,
            1000, "blackwell", _SHEETS + "dgx-b200/", measured=False),
    GpuType("gb200", "GB200 (one GPU) 186 GB", 189471, 8000 * _GB, _peaks(1250, 2500, 5000, 10000), 0.75, 900 * _GB,
            50 * _GB, 72, 1200, "blackwell", _SHEETS + "gb200-nvl72/", measured=False),
    GpuType("gb300", "GB300 (one GPU) 279 GB", 284208, 8000 * _GB, _peaks(1250, 2500, 5000, 15000), 0.75, 900 * _GB,
            100 * _GB, 72, 1400, "blackwell", _SHEETS + "gb300-nvl72/", measured=False),
    GpuType("l40s", "L40S 48 GB", 46068, 864 * _GB, _peaks(183, 362, 733), 0.70, 25 * _GB, 12.5 * _GB, 8, 350,
            "ada", _SHEETS + "l40s/", measured=False),
    GpuType("a10", "A10 24 GB", 23028, 600 * _GB, _peaks(62.5, 125), 0.70, 25 * _GB, 6.25 * _GB, 4, 150,
            "ampere", _SHEETS + "products/a10-gpu/", measured=False),
    GpuType("mi300x", "MI300X 192 GB", 196592, 5300 * _GB, _peaks(653.7, 1307, 2615), 0.514, 448 * _GB, 50 * _GB, 8, 750,
            "cdna3", "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html"),
)  # fmt: skip

GPU_TYPES: MappingProxyType[str, GpuType] = MappingProxyType({one.name: one for one in _TYPES})

# Other ways to write a type: of job files, clouds and papers.
_ALIASES = {
    "a100-80": "a100", "a100-80gb": "a100", "a100-sxm": "a100", "a100-40gb": "a100-40", "h100-80": "h100", "h100-80gb": "h100",
    "h100-sxm": "h100", "h200-141": "h200", "h200-sxm": "h200", "b200-sxm": "b200", "b300": "gb300", "a10g": "a10",
    "a10-24": "a10", "mi300": "mi300x", "l40s-48": "l40s",
}  # fmt: skip
_OTHER_BOARDS = {"pcie", "nvl", "mig"}  # slower ones of the same name


def find_gpu_type(name: str, memory_gb: float = 0) -> GpuType | None:
    """Returns the GPU type of a name in any usual spelling, or None. `memory_gb` tells the A100 of 40 GB from that of
    80 GB."""
    word = (
        "-".join(name.strip().lower().replace("_", " ").replace("-", " ").split())
        .removeprefix("nvidia-")
        .removeprefix("amd-")
    )
    found = GPU_TYPES.get(_ALIASES.get(word, word))
    if found is None:  # "NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"
        known = {part for part in word.split("-") if part in GPU_TYPES}
        found = GPU_TYPES[known.pop()] if len(known) == 1 and not set(word.split("-")) & _OTHER_BOARDS else None
        memory_gb = memory_gb or (40 if "40gb" in word else 0)
    if found is not None and found.name == "a100" and 0 < memory_gb <= 40:
        return GPU_TYPES["a100-40"]
    return found

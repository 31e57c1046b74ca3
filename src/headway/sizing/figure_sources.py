"""Formula and source of each figure of a sized training, for `--explain`, the API and the page."""

from __future__ import annotations

from types import MappingProxyType

FIGURE_SOURCES = MappingProxyType({
    "memory": "weights 2, gradients 2 to 4 and Adam 12 bytes a parameter, divided by what shares them (ZeRO, 1910.02054); "
              "activations of equations 2 to 5 of Korthikanti et al. (2205.05198); 4 % for fragmentation",
    "layout": "the fastest of all divisions of the GPUs that need at most 94 % of the memory",
    "throughput": "seconds of a step: matrix products by shape and peak, FlashAttention, memory traffic, collectives by "
                  "bandwidth, pipeline bubble (p - 1) / (v m) (Narayanan et al., 2104.04473); fitted to published runs",
    "band": "nine of ten held-out published runs are within 10 %; wider for each thing that no published run has",
    "MFU": "6 active parameters + 6 L d s FLOP a token (causal), by the precision's peak of the data sheet (PaLM, 2204.02311)",
    "days": "tokens by throughput, and the time that checkpoints and interruptions take",
    "interruptions": "419 in 54 days on 16,384 GPUs (Llama 3, 2407.21783, section 3.3.4)",
    "checkpoint": "14 bytes a parameter with Adam, written at 2 GB/s a node, at most 200; interval "
                  "sqrt(2 x write time x time between interruptions) (Young; Daly 2006)",
    "energy": "GPUs at their power limit, 25 % more for the rest of the machines, PUE 1.2",
    "price": "the lowest on-demand price of headway offers' shipped list, unless a price is given",
})  # fmt: skip

"""A container that has of the driver what its node has, for the tests of what it may lack."""

from __future__ import annotations

from gpunode.components.smoke import Handed, InContainer
from gpunode.system.smi import parse_list

# As NVIDIA's nvidia-smi 550 prints it.
LIST = (
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-1111-1111-1111-111111111111)",
    "  MIG 3g.20gb     Device  0: (UUID: MIG-22222222-2222-2222-2222-222222222222)",
    "  MIG 1g.5gb+me   Device  1: (UUID: MIG-33333333-3333-3333-3333-333333333333)",
    "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-44444444-4444-4444-4444-444444444444)",
)
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so"
NODE = Handed(parse_list(LIST), cuda=f"{LIBRARY}.1")
SEEN = InContainer((f"{LIBRARY}.580.95.05",), (f"{LIBRARY}.1",), 0, tuple(map(str.strip, LIST)))

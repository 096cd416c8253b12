"""Images that a person pins: by a tag that is no moving one, or by a digest."""

from __future__ import annotations

from typing import Annotated

from gpunode.settings.chart import HOST
from gpunode.settings.component import matching

PinnedImage = Annotated[
    str,
    matching(
        rf"{HOST}(/[a-z0-9][a-z0-9._-]*)+(?=[:@])(:(?!latest(@|$))[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
        "an image with its tag or digest, such as 'registry.example.org/rdma-plugin:v1.5.3'; the tag 'latest' pins "
        "nothing",
    ),
]

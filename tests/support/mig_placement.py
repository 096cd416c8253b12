"""What several tests share with unit/test_mig_placement.py."""

from gpunode.components.mig.geometry import Geometry, product_geometry
from gpunode.components.mig.layouts import feasible
from gpunode.components.mig.placement import Impossible, Placement, layout_of, place

SEVEN, FOUR = "H100-80GB", "A30-24GB"


def geometry(name: str = SEVEN) -> Geometry:
    found = product_geometry(name)
    assert found is not None
    return found


def plain_layouts(name: str) -> list[dict[str, int]]:
    """Return every feasible layout without media extensions."""
    every = (layout_of(geometry(name), layout) for layout in feasible(geometry(name)))
    return [layout for layout in every if not any("+" in profile for profile in layout)]


def placed(product: str, layout: dict[str, int]) -> tuple[Placement, ...] | Impossible:
    """Return where a layout stands, or why it has no place."""
    return place(geometry(product), layout)

"""From declared profiles to the instances of a product: published names, shared GPU instances, verdicts, filters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.components.mig.check import target
from gpunode.components.mig.goal import Verdict, judge, nearest_layouts
from gpunode.settings.mig_parted.declaration import known_names, published

pytestmark = pytest.mark.pure

PRODUCTS = tuple(tables.mig().products)


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_published_configuration_fits_its_product(product: str) -> None:
    for name, (entry,) in published(product).configs.items():
        assert judge(product, entry.mig_devices or {}).verdict is Verdict.PLACED and name in known_names(), name


@given(
    st.sampled_from(PRODUCTS).flatmap(
        lambda product: st.tuples(
            st.just(product),
            st.dictionaries(st.sampled_from(list(tables.mig().products[product].profiles)), st.integers(0, 9)),
        )
    )
)
def test_what_is_called_nearest_fits_whatever_was_asked_for(asked: tuple[str, dict[str, int]]) -> None:
    product, mig_devices = asked
    for layout in nearest_layouts(product, mig_devices):
        assert judge(product, layout).verdict is Verdict.PLACED


def test_a_gpu_is_named_by_product_or_device_id() -> None:
    for text in ("H100-80GB", "h100-80gb", "0x2330", "0x233010DE", "0X2331"):
        found = target(text)
        assert found is not None and found.product == "H100-80GB", text
    assert target("0x2330") != target("H100-80GB")
    for text in ("", "H100", "2330", "0x2236", "0x23300000"):
        assert target(text) is None, text

"""gpunode. In a checkout, its packages facts, operations, deploys and lab are folders next to this one."""

from pathlib import Path

PACKAGE = Path(__file__).parent
# Where facts/, operations/, deploys/ and templates/ are: in the package of a wheel, next to the package in a checkout.
ROOMS = PACKAGE if (PACKAGE / "facts" / "__init__.py").is_file() else PACKAGE.parent
if ROOMS != PACKAGE:
    __path__.append(str(ROOMS))
# Where config.py and inventories/ are, which `gpunode init` copies.
REPOSITORY = PACKAGE / "repository" if ROOMS == PACKAGE else ROOMS

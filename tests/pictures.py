"""Make docs/pictures: the pages of SIMULATED fleets as a browser shows them. `python -m tests.pictures`"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpunode.cli.plan import as_json
from gpunode.fleet.page.html import document_page
from tests.reference import plan
from tests.support import fleet_documents as fleet
from tests.support.browser import Browser, BrowserError, browser

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
# Two hours after the SIMULATED reading, so that the page's "2 hours ago" is the same in every picture.
_NOW = int(fleet.AT.timestamp() * 1000) + 2 * 3600 * 1000


@dataclass(frozen=True)
class Picture:
    """Hold what is shown, and how: address behind `#`, colours, size in CSS pixels."""

    name: str
    command: str
    where: str = ""
    scheme: str = "light"
    width: int = 1280
    height: int = 800

    @property
    def is_phone(self) -> bool:
        return self.width < 500


PICTURES = (
    Picture("drift", "drift"),
    Picture("drift-dark", "drift", "#show=gpu-0220", "dark"),
    Picture(
        "drift-phone", "drift", "#component=containerd&verdict=drift&show=gpu-0220&of=containerd", width=390, height=844
    ),
    Picture("plan", "plan", "#show=gpu-new&of=driver", height=620),
)


def take(seen: Browser, picture: Picture, page: Path) -> bytes:
    """Write one picture, and return its bytes."""
    seen.new_page()
    seen.call("Page.addScriptToEvaluateOnNewDocument", source=f"Date.now = () => {_NOW};")
    seen.size(picture.width, picture.height, 1.5 if picture.is_phone else 1, picture.is_phone)
    seen.colours(picture.scheme)
    seen.call("Page.navigate", url=f"{page.as_uri()}{picture.where}")
    seen.wait("document.documentElement?.dataset.ready")
    seen.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    path = FOLDER / f"{picture.name}.png"
    seen.picture(path)
    return path.read_bytes()


def main() -> None:
    """Take all of them."""
    FOLDER.mkdir(exist_ok=True)
    planned = as_json(plan.example(), fleet.CALL, fleet.VERSION, datetime(2026, 1, 15, 12, tzinfo=UTC))
    documents = {"drift": fleet.fleet(), "plan": planned}
    with tempfile.TemporaryDirectory() as name, browser() as seen:
        for command, document in documents.items():
            (Path(name) / f"{command}.html").write_text(document_page(command, document), encoding="utf-8")
        for picture in PICTURES:
            size = len(take(seen, picture, Path(name) / f"{picture.command}.html"))
            print(f"{FOLDER / picture.name}.png: {size // 1000} kB")


if __name__ == "__main__":
    try:
        main()
    except BrowserError as error:
        raise SystemExit(str(error)) from None

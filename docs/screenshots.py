"""Takes screenshots of the built site, and measures every page of it.

    python docs/screenshots.py docs/_build/html shots
    python docs/screenshots.py docs/_build/html shots howto/cli faq

Each page is shown at 1280 and 390 pixels, light and dark, from top to bottom. Then
every page of the site is measured: those above 6,000 pixels at a width of 1280, and
those that scroll sideways at either width, are printed.

It needs Chromium and nothing else: the browser is driven through a pipe, in the
protocol of its developer tools.
"""

import argparse
import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


PAGES = [
    "index",
    "tutorials/first_fit",
    "howto/estimators",
    "results/benchmarks",
    "results/paper/claims",
    "reference/modules/natgrad.sklearn",
    "gallery/index",
    "gallery/motorcycle",
]
WIDTHS = (1280, 390)
TALLEST = 6000  # pixels, at the first width
SHOWN = 6000  # pixels of a page in its screenshot
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


class Browser:
    """One tab of a browser, and the two ends of the pipe to it."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._heard = os.fdopen(to, "wb", 0), back, b""
        self._sent, self._session, self._loaded = 0, "", 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Sends a command and waits for its answer."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method}
        message["params"] = parameters
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        answer = self._hear()
        while answer.get("id") != self._sent:
            answer = self._hear()
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _hear(self) -> Any:
        """The next message; that a page is loaded may come before any answer."""
        while b"\0" not in self._heard:
            part = os.read(self._back, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self._heard += part
        text, _, self._heard = self._heard.partition(b"\0")
        message = json.loads(text)
        self._loaded += message.get("method") == "Page.loadEventFired"
        return message

    def show(self, address: str, width: int, scheme: str = "light") -> None:
        """Loads a page in a window, and waits until it is there."""
        self.resize(width, 900)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        before = self._loaded
        self.call("Page.navigate", url=address)
        while self._loaded == before:
            self._hear()

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)

    def size(self) -> tuple[int, int]:
        """How wide and high the page is, with what does not fit the window."""
        root = "document.documentElement"
        both = f"[{root}.scrollWidth, {root}.scrollHeight]"
        got = self.call("Runtime.evaluate", expression=both, returnByValue=True)
        width, height = got["result"]["value"]
        return width, height

    def picture(self, width: int, height: int) -> bytes:
        """The upper part of the page, as PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call(
            "Page.captureScreenshot", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(shot["data"])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Starts Chromium, which CHROMIUM may name, and ends it afterwards."""
    paths = (os.environ.get("CHROMIUM"), *map(shutil.which, BROWSERS))
    path = next((path for path in paths if path), None)
    if path is None:
        raise FileNotFoundError(f"there is no {', '.join(BROWSERS)} here")
    down, up = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [path, *OPTIONS, f"--user-data-dir={profile}"]
        # It reads commands from descriptor 3 and answers to 4.
        shell = f'exec "$@" 3<&{down[0]} 4>&{up[1]}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "-", *command, "--remote-debugging-pipe"],
            pass_fds=(down[0], up[1]),
            stderr=subprocess.DEVNULL,
        )
        os.close(down[0])
        os.close(up[1])
        try:
            yield Browser(down[1], up[0])
        finally:
            process.terminate()
            process.wait()


def shoot(tab: Browser, site: Path, pages: list[str], out: Path) -> None:
    """Writes pictures of some pages."""
    out.mkdir(parents=True, exist_ok=True)
    for page in pages:
        file = site / f"{page}.html"
        if not file.is_file():
            print(f"{page}: not in the site")
            continue
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                tab.show(file.as_uri(), width, scheme)
                # Pictures that load when they are seen are seen now.
                tab.resize(width, min(tab.size()[1], SHOWN))
                name = f"{page.replace('/', '_')}-{width}-{scheme}.png"
                height = min(tab.size()[1], SHOWN)
                (out / name).write_bytes(tab.picture(width, height))


def measure(tab: Browser, site: Path) -> list[str]:
    """What is too high or too wide, of all pages of a site."""
    found: list[str] = []
    for file in sorted(site.rglob("*.html")):
        page = file.relative_to(site).with_suffix("").as_posix()
        if page.startswith("_") or page in ("genindex", "search", "py-modindex"):
            continue
        for width in WIDTHS:
            tab.show(file.as_uri(), width)
            wide, high = tab.size()
            if wide > width:
                found.append(f"{page}: {wide} px wide at {width}")
            if width == WIDTHS[0] and high > TALLEST:
                found.append(f"{page}: {high:,} px high at {width}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path, help="the folder of the built site")
    parser.add_argument("out", type=Path, help="the folder for the pictures")
    parser.add_argument("pages", nargs="*", default=PAGES, help="without .html")
    arguments = parser.parse_args()
    with browser() as tab:
        folder = arguments.site.resolve()
        shoot(tab, folder, arguments.pages, arguments.out)
        print("\n".join(measure(tab, folder)) or "every page fits")

"""A real Chromium, driven over its own debugging pipe: what a page asks for, what it complains of, and how it looks.

Nothing but the browser is needed: it speaks JSON over two file descriptors, 3 and 4, one object after the other with a zero
byte between them.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PATIENCE_S = 45


def find_chromium():
    """Where it is; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser with one page."""

    def __init__(self, program, profile):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        arguments = [
            *(
                "--headless=new",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "--no-first-run",
                "--hide-scrollbars",
            ),
            *("--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", "--force-color-profile=srgb", "--disable-extensions"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # root has none to use
            "about:blank",
        ]
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._log = Path(profile, "log").open("wb")  # noqa: SIM115 - closed with the browser
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *arguments],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(to_read)
        os.close(to_write)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session = None
        self.events = []
        page = next(each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(f"{domain}.enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._log.close()

    def ask(self, method, **parameters):
        """Call a method of the protocol, and wait for its answer."""
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self.events.append(message)

    def open(self, url):
        """Go to a page, and wait until it is loaded and has settled."""
        self.events.clear()
        self.ask("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait_for(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def named(self, method):
        return [event["params"] for event in self.events if event.get("method") == method]

    def run(self, script):
        """The value of a script, which the tools of the browser may run although the page itself may not."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screen(self, width, height=900, *, is_dark=False, media="screen"):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def screenshot(self, path):
        """The whole page as a picture."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16_000), "scale": 1}
        made = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        Path(path).write_bytes(base64.b64decode(made["data"]))

    def pdf(self, path):
        made = self.ask("Page.printToPDF", printBackground=True)
        Path(path).write_bytes(base64.b64decode(made["data"]))

    def _next(self):
        deadline = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "Chromium has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

"""A real browser for the tests of pages; where there is none, these tests are skipped."""

from __future__ import annotations

import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_BROWSER = next(filter(None, map(shutil.which, _NAMES)), None)
_DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    _BROWSER is None or _DRIVER is None, reason="no chromium and chromedriver on this machine's PATH"
)


def open_browser(profile):
    """A browser of our own, with a profile in this folder."""
    from selenium import webdriver  # of the dev extra: without it these tests fail

    options = webdriver.ChromeOptions()
    options.binary_location = _BROWSER
    for flag in (*_FLAGS, f"--user-data-dir={profile}", "--window-size=1280,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # With the driver's path nothing is looked for or fetched.
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=_DRIVER))


def show(driver, *, width: int = 1280, scheme: str = "light") -> None:
    """The window of a phone or a desktop, in light or dark colours."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def complaints(driver) -> list:
    """What the page left in the console that is not good."""
    return [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def serious_violations(driver) -> dict[str, str]:
    """What axe finds that keeps people out: rule and first offender."""
    from axe_core_python.selenium import Axe

    found = Axe().run(driver)["violations"]
    return {entry["id"]: entry["nodes"][0]["html"] for entry in found if entry["impact"] in ("serious", "critical")}

"""The documentation site: built strictly, complete, readable on a phone and offline."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from browser import complaints, needs_browser, open_browser, serious_violations, show

ROOT = Path(__file__).parent.parent.parent
SPEC = importlib.util.spec_from_file_location("site_builder", ROOT / "tools" / "site.py")
site_builder = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site_builder)

pytestmark = pytest.mark.long
PAGES = ("index.html", "guide.html", "samplers.html", "notebooks/gallery.html", "api/annealfit.problems.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site") / "html"
    command = [sys.executable, str(ROOT / "tools" / "site.py"), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr
    return folder


def documented(site: Path) -> set[str]:
    """The names in the site's inventory, in the format that Sphinx has for other sites to link to it."""
    text = (site / "objects.inv").read_bytes()
    *_, packed = text.split(b"\n", 4)
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split()[0] for line in lines if line.split()[1].startswith("py:")}


def test_every_public_name_is_documented(site):
    wanted = {
        f"{module}.{name}"
        for modules in site_builder.packages().values()
        for module in modules
        for name in site_builder.public_names(site_builder._path(module))
    }
    assert len(wanted) > 200
    assert wanted - documented(site) == set()


def test_what_a_package_exports_is_documented_where_it_is_defined(site):
    import annealfit
    import annealfit.quantization
    import annealfit.samplers

    names = documented(site)
    for package in (annealfit, annealfit.samplers, annealfit.quantization):
        things = [getattr(package, name) for name in package.__all__]
        defined = [f"{thing.__module__}.{thing.__qualname__}" for thing in things if callable(thing)]
        assert len(defined) >= 5
        assert set(defined) - names == set()


def test_names_in_the_reference_lead_somewhere(site):
    index = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    targets = {name for _, name in site_builder.LINK.findall(index)}
    assert len(targets) > 15
    assert {site_builder.definition(name) for name in targets} - documented(site) == set()


def test_notebooks_show_their_results(site):
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        text = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        assert "highlight-text" in text or f"{notebook.stem}-" in text  # what it prints or draws
    assert len(list((site / "_images").glob("quick_start-*.png"))) == 2


def test_nothing_comes_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"""<(?:script|img|iframe)[^>]*\ssrc=["']([^"']+)|<link[^>]*\shref=["']([^"']+)""", text)
        assert [a or b for a, b in fetched if (a or b).startswith(("http", "//"))] == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_every_page_has_a_place():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {line for block in re.findall(r"```{toctree}\n(.*?)```", index, re.S) for line in block.split()}
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages - listed == set()


def test_pages_that_moved_lead_to_pages(site):
    for old, new in site_builder.MOVED.items():
        assert f"url={new}.html" in (site / f"{old}.html").read_text(encoding="utf-8")
        assert (site / f"{new}.html").exists()
        assert not (ROOT / "docs" / f"{old}.md").exists()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    browser = open_browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.quit()


@needs_browser
@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_and_everyone_can_read_them(site, driver, page):
    driver.get_log("browser")
    for width, scheme in ((390, "light"), (1280, "dark")):
        show(driver, width=width, scheme=scheme)
        driver.get((site / page).as_uri())
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert serious_violations(driver) == {}
    assert complaints(driver) == []


@needs_browser
def test_search_works_from_a_folder(site, driver):
    from selenium.webdriver.support.ui import WebDriverWait

    show(driver)
    driver.get((site / "search.html").as_uri() + "?q=LatticeSolver")
    found = WebDriverWait(driver, 60).until(lambda page: page.find_elements("css selector", "#search-results li a"))
    assert found

"""The page in a real browser."""

from __future__ import annotations

import json
import re

import pytest
from browser import complaints, needs_browser, open_browser, serious_violations, show

from annealfit.studies.report.page import write_report

pytestmark = [pytest.mark.long, needs_browser]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    browser = open_browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def address(run_folder, tmp_path_factory):
    (path,) = write_report(run_folder, tmp_path_factory.mktemp("page") / "report.html")
    return path.as_uri()


@pytest.fixture
def page(driver, address):
    """The page, freshly loaded in a desktop window and in light colours; it must leave no error in the console."""
    driver.get_log("browser"), driver.get_log("performance")
    show(driver)
    driver.get(address)
    yield driver
    assert complaints(driver) == []


def all_of(page, selector: str):
    return page.find_elements("css selector", selector)


def one_of(page, selector: str):
    return page.find_element("css selector", selector)


def choose(page, selector: str, text: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(one_of(page, selector)).select_by_visible_text(text)


def test_nothing_is_fetched(page):
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # The browser's own start page may still be loading; only what this page asks for counts.
    ours = [request["request"]["url"] for request in sent if request["documentURL"] == page.current_url]
    assert [url for url in ours if not url.startswith("data:")] == [page.current_url]


def test_every_section_is_drawn(page):
    assert len(all_of(page, "main > section > h2")) >= 11
    assert len(all_of(page, "#glance .dot-panel")) == 2
    assert all_of(page, "#curve-chart polyline.curve")
    assert all_of(page, "#gap-chart polyline.curve")
    assert all_of(page, "#confusions td.right")
    images = all_of(page, "#samples img")
    assert len(images) == 10
    assert all(image.get_attribute("alt") and image.get_property("naturalWidth") == 8 for image in images)


def test_a_curve_can_be_toggled_by_mouse_and_keyboard(page):
    button = one_of(page, '#curve-chart .legend button[data-series="QUBO 20-bit, matched"]')
    curve = '#curve-chart polyline[data-series="QUBO 20-bit, matched"]'
    assert button.get_attribute("aria-pressed") == "true"
    assert len(all_of(page, curve)) == 1
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert all_of(page, curve) == []
    button.send_keys("\n")
    assert button.get_attribute("aria-pressed") == "true"
    assert len(all_of(page, curve)) == 1


def test_hover_and_arrow_keys_move_the_readout(page):
    from selenium.webdriver import ActionChains, Keys

    plot, at = one_of(page, "#curve-chart .plot"), one_of(page, "#curve-chart .legend .at")
    assert at.text == "at the end"
    ActionChains(page).move_to_element(plot).perform()
    assert at.text.startswith("at iteration ")
    before = int(at.text.split()[-1])
    plot.send_keys(Keys.ARROW_RIGHT)
    assert int(at.text.split()[-1]) > before
    assert "QUBO 20-bit, matched: " in one_of(page, '#curve-chart [data-role="spoken"]').get_property("textContent")


def test_zoom_by_drag_button_and_key(page):
    from selenium.webdriver import ActionChains

    def points():
        return one_of(page, "#curve-chart polyline.curve").get_attribute("points")

    plot, whole = one_of(page, "#curve-chart .plot"), points()
    ActionChains(page).move_to_element_with_offset(plot, -100, -80).click_and_hold().move_by_offset(
        150, 120
    ).release().perform()
    assert points() != whole
    one_of(page, '#curve-chart [data-role="reset"]').click()
    assert points() == whole
    one_of(page, '#curve-chart [data-role="in"]').click()
    assert points() != whole
    plot.send_keys("0")
    assert points() == whole


def test_a_table_sorts_by_mouse_and_keyboard(page):
    def column():
        return [float(cell.get_attribute("data-sort")) for cell in all_of(page, "#table-digits tbody td:nth-child(3)")]

    header = one_of(page, "#table-digits thead th:nth-child(3)")
    assert header.get_attribute("aria-sort") == "none"
    unsorted = column()
    header.find_element("tag name", "button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(unsorted) != unsorted
    header.find_element("tag name", "button").send_keys("\n")
    assert header.get_attribute("aria-sort") == "descending"
    assert column() == sorted(unsorted, reverse=True)
    other = one_of(page, "#table-digits thead th:nth-child(1)")
    other.find_element("tag name", "button").click()
    assert (header.get_attribute("aria-sort"), other.get_attribute("aria-sort")) == ("none", "ascending")


def test_a_hostile_class_name_stays_text(page):
    from selenium.common.exceptions import NoAlertPresentException

    hostile = "<img src=x onerror=alert(1)>"
    choose(page, '#confusions [data-role="dataset"]', "MNIST")
    choose(page, '#samples [data-role="dataset"]', "MNIST")
    assert hostile in one_of(page, "#confusions table").text
    assert hostile in one_of(page, "#samples table.samples").text
    assert "</script><script>alert(2)</script>" in one_of(page, "#table-failures").text
    assert all_of(page, "img[onerror], img[src='x'], td b, th b") == []
    with pytest.raises(NoAlertPresentException):
        page.switch_to.alert.dismiss()


def test_dark_colours_follow_the_system(page):
    def ground():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    assert ground() == "rgb(255, 255, 255)"
    show(page, scheme="dark")
    assert ground() == "rgb(20, 23, 26)"


def unfold(page) -> None:
    page.execute_script("document.querySelectorAll('details').forEach((details) => { details.open = true; })")


@pytest.mark.parametrize("width", [320, 390, 1280, 1920])
def test_nothing_is_clipped_and_every_table_shows_its_numbers(page, width):
    show(page, width=width)
    page.refresh()
    unfold(page)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    # The first row that is shown, its first cell of numbers or words: all of it stands in the window.
    unseen = page.execute_script(
        "return [...document.querySelectorAll('table')].filter((table) => {"
        "  const row = [...table.tBodies[0].rows].find((row) => !row.hidden);"
        "  const box = row.querySelector('td').getBoundingClientRect();"
        "  return box.left < 0 || box.right > window.innerWidth;"
        "}).map((table) => table.closest('[id]').id)"
    )
    assert unseen == []
    clipped = page.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
        ".map((box) => box.closest('[id]').id)"
    )
    assert clipped == [] or width < 600  # there wide tables scroll in a box of their own
    # Boxes scroll sideways at most: nothing scrolls up and down inside the page.
    assert (
        page.execute_script(
            "return [...document.querySelectorAll('*')].filter((e) => e !== document.documentElement"
            " && e.scrollHeight > e.clientHeight + 1 && ['auto', 'scroll'].includes(getComputedStyle(e).overflowY)"
            " && getComputedStyle(e).overflowX !== getComputedStyle(e).overflowY).length"
        )
        == 0
    )


def test_a_long_table_shows_one_data_set_at_a_time(page):
    unfold(page)
    rows = "#table-gap tbody tr"
    shown = {row.get_attribute("data-group") for row in all_of(page, rows) if row.is_displayed()}
    choices = all_of(page, '#table-gap [data-role="rows"]')
    assert (shown == {"Digits"}) if choices else (shown == {"Digits", "MNIST"})


def test_curves_against_solves_and_time(page):
    choose(page, '#curve-chart [data-role="across"]', "QUBO solves")
    sgd = one_of(page, '#curve-chart polyline[data-series="Classical (SGD)"]').get_attribute("points").split()
    heights = {point.split(",")[1] for point in sgd}
    assert len(sgd) == 2
    assert len(heights) == 1  # a step of SGD is no solve: its end is a level
    plot, readout = one_of(page, "#curve-chart .plot"), "#curve-chart .legend .at"
    plot.send_keys("\ue012")  # the left arrow
    assert one_of(page, readout).text == "at 200 solves"  # of 21 iterations with ten classes, the last but one
    choose(page, '#curve-chart [data-role="across"]', "Seconds of training")
    plot.send_keys("\ue012")
    assert re.fullmatch(r"at [\d.]+ s", one_of(page, readout).text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_serious(page, width, scheme):
    show(page, width=width, scheme=scheme)
    page.refresh()
    unfold(page)
    assert serious_violations(page) == {}


def test_the_keyboard_reaches_every_control(page):
    from selenium.webdriver import ActionChains, Keys

    unfold(page)
    wanted = page.execute_script(
        "const found = [...document.querySelectorAll('a, button, select, summary, [tabindex=\"0\"]')]"
        ".filter((e) => e.getClientRects().length);"
        "found.forEach((e, place) => { e.dataset.place = place; }); return found.length"
    )
    reached = set()
    for _ in range(wanted + 5):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.execute_script("return document.activeElement.dataset.place ?? null"))
    assert reached - {None} == {str(place) for place in range(wanted)}


def test_on_paper_it_is_whole(page):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not one_of(page, "nav").is_displayed()
    # Closed parts are printed too.
    assert page.execute_script("return document.querySelector('#table-settings td').getBoundingClientRect().height") > 0
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_names_for_a_screen_reader(page):
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('button, select, input')].filter("
        "(e) => !(e.textContent.trim() && e.tagName === 'BUTTON') && !e.closest('label')).map((e) => e.outerHTML)"
    )
    assert unnamed == []
    assert page.execute_script("return document.documentElement.lang") == "en"
    assert len(all_of(page, "main")) == len(all_of(page, "h1")) == 1
    assert all_of(page, "table:not([aria-labelledby]):not(:has(caption))") == []
    assert all_of(page, "thead th:not([scope='col'])") == []

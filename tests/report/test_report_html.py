"""The page as a file: what it needs, what it says, and how it takes bad input."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from annealfit._support import errors
from annealfit._support.errors import FileFormatError, InvalidInputError, MissingDependencyError
from annealfit.studies.records import Record, RunSpec, Store
from annealfit.studies.report import page as report_page
from annealfit.studies.report.page import (
    PAPER_LINK,
    leading_groups,
    opening_sentences,
    read_records,
    render,
    summarise_records,
    write_report,
)
from annealfit.studies.report.tables import groups


def embedded(page: str):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.S).group(1))


def test_page_is_self_contained(run_folder, tmp_path):
    (path,) = write_report(run_folder, tmp_path / "deep" / "report.html")
    page = path.read_text(encoding="utf-8")
    addresses = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page)
    assert addresses
    elsewhere = {address for address in addresses if not address.startswith(("#", "data:")) and "${" not in address}
    assert elsewhere == {PAPER_LINK}  # to be followed by a reader; nothing is fetched from it
    assert "default-src 'none'" in page
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]  # nothing half-written is left


def test_records_are_text_in_the_page(records):
    page = render(records)
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert "ValueError: &lt;/script&gt;&lt;script&gt;alert(2)" in page
    names = next(matrix["classes"] for matrix in embedded(page)["confusions"] if matrix["dataset"] == "MNIST")
    assert names[:2] == ["<img src=x onerror=alert(1)>", "</script><b>bold</b>"]


def test_summary_counts(records):
    summary = summarise_records(records, ["one.safetensors is cut short"])
    assert (summary["finished"], summary["failed"], len(summary["damaged"])) == (23, 1, 1)
    (times,) = [entry for entry in summary["times"] if entry["preset"] == "matched"]
    assert (times["runs"], times["seconds"], times["paper_seconds"]) == (3, 7.0, 3 * 2449)
    assert summary["paper_total_seconds"] / 3600 == pytest.approx(28.5, abs=0.1)
    assert summary["images"] == ["published", "stated"]


def test_opening_says_the_claim_how_close_and_what_bits_do(records):
    _, published, stated = opening_sentences(records)
    assert "(published), percentages of its benchmark within 5 points: Classical (SGD) 6 of 7, " in published
    assert "literal 0 of 7, matched 5 of 7." in published
    assert "(stated), percentages of its benchmark within 5 points: Classical (SGD) 0 of 7, matched 7 of 7." in stated
    assert len(opening_sentences([])) == 1
    digits = [record for record in records if record.run.dataset == "digits" and record.run.update_range is None]
    changes = {"matched": {"preset": "literal"}, "annealfit": {"bits": 1}}
    more = [replace(r, spec=replace(r.run, **changes[r.run.preset])) for r in digits if r.run.preset in changes]
    *_, temperature, bits = opening_sentences([*records, *more])
    assert "at 25.0 → 85.0 % as printed (literal) and at 25.0 → 85.0 % with a colder anneal" in temperature
    assert "it tests better than SGD on 1 of 1 data sets, by +5.0 to +5.0 points." in bits
    (group,) = [group for group in leading_groups(records)["digits"] if group.spec.preset == "matched"]
    cell = group.cell("test_accuracy_percent")
    assert (cell.value, cell.paper, group.values("test_accuracy_percent")) == (pytest.approx(85), 81.5, [80, 90])


def test_only_what_was_asked_for_is_missing(run_folder, records, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(run_folder, folder)
    assert "nothing that was asked for is missing" not in render(records)  # one run failed
    store = Store(folder)
    assert store.asked() == set()
    wanted = [*(record.run for record in records), RunSpec("kmnist", "classical", 42)]
    store.ask(wanted)
    store.ask(wanted)
    assert store.asked() == set(wanted)
    summary = summarise_records(records, (), store.asked())
    assert (summary["missing"], summary["failed"]) == (1, 1)
    (path,) = write_report(folder, tmp_path / "report.html")
    assert "1 asked for and missing" in " ".join(path.read_text(encoding="utf-8").split())
    next((folder / "asked").iterdir()).write_text("{")
    with pytest.raises(FileFormatError, match="not a list of runs"):
        store.asked()


def test_presets_are_explained_whichever_were_run(records):
    page = " ".join(render([record for record in records if record.run.preset == "annealfit"]).split())
    assert all(f"<dt>{preset}</dt>" in page for preset in ("literal", "matched", "annealfit"))
    assert page.count("Not run here.") == 3  # and no stated images


def test_curves_have_a_place_on_every_axis(records):
    (digits, *_) = report_page.page_data(groups(records))["curves"]
    by_name = {series["name"]: series["across"] for series in digits["series"]}
    matched = by_name["QUBO 20-bit, matched"]
    assert matched["solves"] == [10 * n for n in matched["iteration"]]  # a solve per class
    assert matched["seconds"][-1] == pytest.approx(2.5)  # the mean of both seeds' last
    assert "solves" not in by_name["Classical (SGD)"]
    assert by_name["Convex optimum"] == {"iteration": []}


def test_folder_without_records_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="holds no run records; make some with"):
        write_report(tmp_path, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_damaged_record_is_named_and_skipped(run_folder, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(run_folder, folder)
    victim = sorted((folder / "records").iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:100])
    (path,) = write_report(folder, tmp_path / "report.html")
    page = path.read_text(encoding="utf-8")
    assert victim.name in page
    assert str(tmp_path) not in page
    assert "1 damaged. Each table says what it lacks." in " ".join(page.split())


def test_only_damaged_records_are_refused(tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "a.safetensors").write_bytes(b"nothing")
    with pytest.raises(InvalidInputError, match="all 1 records"):
        read_records(tmp_path)


def test_only_failed_runs_make_a_page():
    page = render([Record("qubo_20", RunSpec("mnist", "qubo", 42, "literal", 20), error="OSError: no disk")])
    assert "OSError: no disk" in page


def test_missing_package_has_an_install_hint(records, monkeypatch):
    def missing(module):
        raise ImportError(module)

    monkeypatch.setattr(errors.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"annealfit\[report\]"):
        render(records)


def test_assets(run_folder, tmp_path):
    paths = write_report(run_folder, tmp_path / "report.html", assets_dir=tmp_path / "tables")
    names = {path.name for path in paths}
    assert {"report.html", "digits.csv", "benchmark.csv"} <= names
    assert all(path.stat().st_size for path in paths)


def test_png_is_the_image():
    image = pytest.importorskip("matplotlib.image")
    pixels = np.array([[0.0, 1.0, 0.5], [0.25, 0.75, 2.0]])
    address = report_page.png_address(pixels)
    read = image.imread(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))
    for channel in range(3):
        np.testing.assert_allclose(read[:, :, channel], np.clip(pixels, 0, 1), atol=1 / 255)


def test_curves_keep_the_last_value_of_a_run_that_stopped(records):
    group = next(g for g in groups(records) if g.spec.label == "qubo_3" and g.spec.dataset == "mnist")
    columns = report_page.history_columns(group, "gap")
    assert columns.shape == (2, 21)
    assert columns[0, 20] == columns[0, 19] == pytest.approx(0.01)

import re
from pathlib import Path

from annealfit.data import datasets
from annealfit.data.datasets import DATASETS

GUIDE = Path(__file__).parents[2] / "docs" / "datasets.md"
TEXT = GUIDE.read_text(encoding="utf-8")


def test_examples_run_and_print_what_they_say(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, GUIDE.name, "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        assert printed[: len(promised)] == promised


def test_every_data_set_and_error_is_in_the_guide():
    named = [name for name in datasets.__all__ if name.endswith(("Error", "Warning"))]
    assert len(named) == 8
    for word in (*DATASETS, *named):
        assert f"`{word}`" in TEXT
    for source in DATASETS.values():
        assert f"{source.n_train} / {source.n_test}" in TEXT

"""tools/size.py counts what a call crosses, and what a constructor takes."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("size", ROOT / "tools" / "size.py")
size = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(size)


def test_files_functions_and_frames_of_a_call(tmp_path, monkeypatch):
    package = tmp_path / "crossed_example"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("def double(x):\n    return 2 * x\n\n\ndef unused():\n    pass\n")
    (package / "outer.py").write_text(
        "from crossed_example.inner import double\n\n\n"
        "def each(values):\n    return sorted(values, key=key)\n\n\n"  # a frame of another library's is not counted
        "def key(x):\n    return double(double(x))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from crossed_example.outer import each

    assert size.crossed(lambda: each([2, 1]), package) == "2, 3, 3"


def test_collectors_of_keywords_are_no_parameters():
    class Estimator:
        def __init__(self, a, *, b=1, **old):
            pass

    assert size.named_parameters(Estimator) == ["a", "b"]


@pytest.mark.long
def test_the_table_is_printed():
    result = subprocess.run([sys.executable, ROOT / "tools" / "size.py"], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert all(name in result.stdout for name in ("fit, one iteration", "mock QPU", "annealfit._support"))

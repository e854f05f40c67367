import re

import pytest
from typer.testing import CliRunner

from annealfit._support.errors import InvalidInputError
from annealfit.cli import app
from annealfit.cli.options import parse_numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3", [3]),
        ("1-20", list(range(1, 21))),
        ("42,44", [42, 44]),
        ("1,2,5-8", [1, 2, 5, 6, 7, 8]),
        ("7-7", [7]),
        ("1, 3 - 4", [1, 3, 4]),
    ],
)
def test_numbers_are_single_listed_or_a_range(text, numbers):
    assert parse_numbers(text, "--bits") == numbers


@pytest.mark.parametrize("text", ["", "many", "1,", "5-", "-5", "8-5", "1,8-5", "1-2-3", "1.5"])
def test_what_is_no_number_or_an_empty_range_is_refused(text):
    with pytest.raises(InvalidInputError, match=re.escape(f"--bits is {text!r}; write whole numbers as 3, 1-20")):
        parse_numbers(text, "--bits")


def test_no_processes_at_all_is_an_error(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "digits", "--jobs", "0", "--out", str(tmp_path)])
    assert "--jobs is 0; give a number of processes" in str(result.exception)

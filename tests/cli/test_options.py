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


@pytest.mark.parametrize("text", ["1-99999999999", f"1-{10**30}", "1-9000,20000-29000"])
def test_more_numbers_than_anyone_means_are_refused_before_there_is_room_for_them(text):
    with pytest.raises(InvalidInputError, match="at most 10,000 numbers"):
        parse_numbers(text, "--seeds")


def test_no_processes_at_all_is_an_error(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "digits", "--jobs", "0", "--out", str(tmp_path)])
    assert "--jobs is 0; give a number of processes" in str(result.exception)
    result = CliRunner().invoke(app, ["reproduce", "digits", "--jobs", "1000000", "--out", str(tmp_path)])
    assert "--jobs is 1000000; give a number of processes up to 1000" in str(result.exception)

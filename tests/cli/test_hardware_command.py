"""`annealfit hardware`: text, JSON, figure, errors; in this process, so that chips are embedded once."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from dwave.system.testing import MockDWaveSampler
from typer.testing import CliRunner

from annealfit.cli import app, main, output
from annealfit.hardware.topologies import ideal_chip

SMALL = ["--features", "18", "--classes", "10", "--bits", "1-3", "--topology", "Z12"]


@pytest.fixture
def annealfit(monkeypatch, capsys, tmp_path):
    """The program with its arguments: exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", 1e6)  # no progress, however slow the machine is
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["annealfit", "hardware", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def solver_file(tmp_path):
    solver = MockDWaveSampler(topology_type="zephyr", topology_shape=[4, 4], broken_nodes=[3, 99])
    path = tmp_path / "solver.json"
    path.write_text(json.dumps(solver.properties))
    return path


def test_the_table_says_what_fits_and_what_it_costs(annealfit):
    code, output, errors = annealfit(*SMALL)
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0].startswith("Z12: 4,800 qubits, 45,864 couplers, largest clique 184")
    assert max(len(line.rstrip()) for line in lines[:7]) <= 100
    assert re.search(r"^ +1 +19 +171 +3 +57 / 5\d\d +10 of 10 +200 × 41 ms +8\.2 s *$", output, re.MULTILINE)
    assert re.search(r"^ +3 +57 +1,596 +5–6 +310 / 3,\d+ +10 of 10 +200 × 43 ms +8\.5 s *$", output, re.MULTILINE)
    assert re.search(r"^ +1 +raw +171 +2\^5 +0\.69 +2\.00 +0–1 % *$", output, re.MULTILINE)
    assert re.search(r"^ +1 +centred +153 +2\^11 +0\.13 +0\.25 +34–65 % *$", output, re.MULTILINE)
    assert len(re.findall(r"^ +\d +(?:raw|centred) ", output, re.MULTILINE)) == 6
    assert "Z12: at most 9 bits fit (171 of 184 variables); 10 bits need 190." in lines
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", output)


def test_the_papers_claims_are_answered(annealfit):
    _, output, _ = annealfit("--classes", 1, "--bits", "5,9,10,15", "--topology", "P16", "--topology", "Z15")
    assert len(re.findall(r"^ +10 +190 .* no fit .* – ", output, re.MULTILINE)) == 1
    assert len(re.findall(r"^ +15 +285 +40,470 .* no fit ", output, re.MULTILINE)) == 2
    assert (
        "P16: at most 9 bits fit (171 of 180 variables); 10 bits need 190. "
        "Counting couplers (40,484), 10 to 15 bits would pass.\n"
    ) in output
    assert "Z15: at most 12 bits fit (228 of 232 variables); 13 bits need 247." in output


def test_json_holds_every_number(annealfit):
    code, output, errors = annealfit("--classes", "2,1", "--bits", "2,10", "--topology", "P16", "--json")
    assert (code, errors) == (0, "")
    answer = json.loads(output)
    assert [(row["classes"], row["bits"]) for row in answer["rows"]] == [(2, 2), (2, 10), (1, 2), (1, 10)]
    fits, does_not = answer["rows"][:2]
    assert fits["embeds"]
    assert fits["placement"]["longest_chain"] == 5
    assert fits["placement"]["classes_at_once"] == 2
    assert fits["cost"]["calls"] == 200
    assert list(fits["resolutions"]) == ["raw", "centred"]
    for resolution in fits["resolutions"].values():
        assert set(resolution["share_below"]) == {"0.01", "0.015", "0.025"}
    assert not does_not["embeds"]
    assert does_not["placement"] is None
    chip = {"chip": "P16", "qubits": 5640, "couplers": 40484, "largest_clique": 180, "features": 18, "most_bits": 9}
    assert all(row.items() >= chip.items() for row in answer["rows"])


def test_columns_of_what_varies_are_added_and_repeated_numbers_left_out(annealfit):
    _, output, _ = annealfit("--features", "4,9,4", "--classes", "2,3", "--bits", 1, "--topology", "Z12")
    assert re.search(r"^features +classes +bits ", output, re.MULTILINE)
    assert len(re.findall(r"^ +[49] +[23] +1 ", output, re.MULTILINE)) == 4
    assert "Z12, 9 features: at most 18 bits fit (180 of 184 variables)" in output


def test_coordinates_can_be_chosen_and_chips_of_the_same_ranges_share_a_table(annealfit):
    options = ["--bits", 1, "--classes", 1, "--topology", "Z12", "--topology", "P16", "--coordinates", "raw"]
    _, output, _ = annealfit(*options)
    assert output.count("Couplings of digits' problems, scaled to the ranges of Z12, P16") == 1
    assert "centred" not in output
    _, output, _ = annealfit(*options, "--json")
    assert [list(row["resolutions"]) for row in json.loads(output)["rows"]] == [["raw"], ["raw"]]


def test_where_not_one_bit_fits_blocks_are_named(annealfit):
    _, output, _ = annealfit("--features", "512", "--bits", "1,9", "--topology", "Z12")
    assert "not even 1 bit fits (513 parameters, 184 variables at most); solve in blocks" in output
    assert "Coefficients are computed up to 4,096 variables." in output


def test_defects_and_reads_matter(annealfit):
    options = ["--classes", 2, "--bits", 1, "--topology", "Z12", "--iterations", 10]
    _, ideal, _ = annealfit(*options, "--json")
    _, broken, _ = annealfit(*options, "--defects", 0.02, "--reads", 9000, "--annealing-time", 50, "--json")
    before, after = (json.loads(text)["rows"][0] for text in (ideal, broken))
    assert after["chip"] == "Z12, 2.0% defects"
    assert after["largest_clique"] < before["largest_clique"] == 184
    assert before["cost"]["calls"] == 10
    assert after["cost"]["calls"] > 10
    assert after["cost"]["access_seconds_of_a_call"] <= 1


def test_a_solvers_file_is_a_chip(annealfit, solver_file):
    code, output, _ = annealfit("--features", 4, "--classes", 2, "--bits", "1-2", "--solver", solver_file)
    assert code == 0
    assert output.startswith("MockDWaveSampler: 574 qubits")
    assert "MockDWaveSampler does not say its problem_timing_data: Advantage's published values" in output
    _, both, _ = annealfit(*SMALL[:-4], "--bits", 1, "--topology", "Z12", "--solver", solver_file, "--json")
    assert [row["chip"] for row in json.loads(both)["rows"]] == ["Z12", "MockDWaveSampler"]


@pytest.mark.parametrize(("ending", "opening"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_the_figure_is_written(annealfit, tmp_path, ending, opening):
    path = tmp_path / "figures" / f"fit.{ending}"
    code, output, _ = annealfit(
        "--classes", 1, "--features", "4,18", "--bits", "1,9-11", "--topology", "Z12", "-o", path
    )
    assert code == 0
    assert f"Figure: {path}" in output
    assert path.read_bytes().startswith(opening)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bits", "0"], "bits is 0; it must be a whole number, at least 1 and at most 30; 2 or 3 do"),
        (["--bits", "5-1"], "--bits is '5-1'; write whole numbers as 3, 1-20 or 1,2,5-8"),
        (["--features", "many"], "--features is 'many'"),
        (["--classes", "0"], "classes is 0"),
        (["--topology", "P17"], "topology is 'P17'; choose one of 'P16', 'Z12', 'Z15'"),
        (["--defects", "2"], "defect rate is 2.0; it must be a finite number, at least 0 and at most 0.5"),
        (["--reads", "0"], "reads is 0"),
        (["--coordinates", "raw,polar"], "coordinates is 'polar'; choose one of 'centred', 'raw'"),
        (["--annealing-time", "9000", "--bits", "1", "--topology", "Z12"], "at least 0.5 and at most 2000"),
        (["--solver", "nowhere.json"], "nowhere.json"),
        (["--solver", "broken.json"], "broken.json is not a JSON file of solver properties"),
        (["--solver", "empty.json"], "empty.json does not describe a chip"),
        (["--solver", "empty.json", "--defects", "0.1"], "--defects is for ideal chips"),
        (["--plot", "fit.xyz"], "fit.xyz does not end in a format for figures: png, svg, pdf"),
        (["--features", "1-6", "--plot", "fit.png"], "a figure of 6 numbers of features cannot be read"),
    ],
)
def test_errors_are_one_clear_line(annealfit, tmp_path, arguments, message):
    (tmp_path / "broken.json").write_text('{"topology": ')
    (tmp_path / "empty.json").write_text("{}")
    code, output, errors = annealfit(*arguments)
    assert (code, output) == (2, "")
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.json", "empty.json"]


def test_help_teaches_with_an_example():
    result = CliRunner().invoke(app, ["hardware", "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "annealfit hardware --features 18" in result.output.split("Example", 1)[1]


def test_without_dwaves_packages_the_extra_is_named(tmp_path):
    program = (
        "import sys; sys.modules['dwave.graphs'] = None; sys.modules['minorminer'] = None\n"
        "sys.argv = ['annealfit', 'hardware']\n"
        "from annealfit.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "pip install 'annealfit[qpu]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_terminal_shows_progress_on_the_side(tmp_path):
    parent, child = pty.openpty()
    program = [sys.executable, "-m", "annealfit", "hardware", "--bits", "1", "--classes", "1", "--topology", "Z12"]
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(program, stdout=out, stderr=child, env={**os.environ, "TERM": "xterm"})
    os.close(child)
    seen = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(parent)
    assert process.wait(timeout=60) == 0
    assert re.search(r"Embedding Z12 .*1/1", re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen).decode())
    assert "Embedding" not in (tmp_path / "out").read_text()
    assert str(ideal_chip("Z12").largest_clique) in (tmp_path / "out").read_text()


def test_the_problems_of_filters(annealfit):
    """Sixteen 5×5 filters of grey images have 26 parameters each: 78 variables at 3 bits."""
    code, output, errors = annealfit("--filters", 16, "--kernel", 5, "--bits", "1,3", "--topology", "Z12")
    assert (code, errors) == (0, "")
    assert re.search(r"filter / call", output)
    assert re.search(r"^ +1 +26 +325 +3–4 +88 / 1,\d+ +16 of 16 +200 × \d+ ms", output, re.MULTILINE)
    assert re.search(r"^ +3 +78 +3,003 +6–7 +506 / 2,\d+ +5 of 16 +800 × \d+ ms", output, re.MULTILINE)
    assert len(re.findall(r"^ +\d +raw +", output, re.MULTILINE)) == 2
    assert "centred" not in output


def test_filters_of_a_second_layer_have_all_channels(annealfit):
    code, output, _ = annealfit("--filters", 2, "--channels", 4, "--bits", 1, "--topology", "Z12", "--json")
    assert code == 0
    (row,) = json.loads(output)["rows"]
    assert (row["variables"], row["classes"]) == (3 * 3 * 4 + 1, 2)


@pytest.mark.parametrize("options", [("--kernel", 6), ("--channels", 0)])
def test_filters_of_no_size_are_refused(annealfit, options):
    code, _, errors = annealfit("--filters", 2, *options)
    assert code != 0
    assert str(options[1]) in errors

import csv
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import dimod
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from annealfit._support.errors import InvalidInputError
from annealfit.cli import app
from annealfit.studies import records as store

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def annealfit(*arguments, **options):
    """The program as a user runs it, with its output piped."""
    return subprocess.run(
        [sys.executable, "-m", "annealfit", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        timeout=300,
        **options,
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = annealfit("train", "digits", "--max-iter", 60, "--out", folder)
    assert result.returncode == 0, result.stderr
    return folder, result


def test_train_prints_one_table_of_three_methods_and_no_control_characters(run_folder):
    _, result = run_folder
    for method in ("QUBO 3-bit", "SGD", "Logistic"):
        assert sum(method in line for line in result.stdout.splitlines()) == 1
    assert not CONTROL.search(result.stdout)
    assert not CONTROL.search(result.stderr)


def test_train_leaves_model_configuration_history_and_pictures(run_folder):
    folder, _ = run_folder
    for name in (
        "model.safetensors",
        "config.json",
        "history.csv",
        "metrics.json",
        "convergence.png",
    ):
        assert (folder / name).stat().st_size > 0
    assert not list(folder.glob("*.part"))
    config = json.loads((folder / "config.json").read_text())
    assert (config["dataset"], config["seed"], config["classifier"]["max_iter"]) == ("digits", 42, 60)
    rows = list(csv.DictReader((folder / "history.csv").open()))
    assert 0 < sum(row["method"] == "QUBO 3-bit" for row in rows) < 60  # it ended by its tolerance
    assert sum(row["method"].startswith("SGD") for row in rows) == 1000
    metrics = json.loads((folder / "metrics.json").read_text())
    assert set(metrics["QUBO 3-bit"]["test"]) == {"accuracy", "precision", "recall", "f1", "kappa", "mcc"}
    assert len(metrics["QUBO 3-bit"]["test_recall_per_class"]) == 10
    assert (folder / "convergence.png").read_bytes().startswith(b"\x89PNG")


def test_predict_knows_its_own_samples(run_folder):
    folder, _ = run_folder
    images = sorted((folder / "samples").glob("*.png"))
    assert len(images) == 10
    answers = json.loads(annealfit("predict", folder, *images, "--json").stdout)
    right = [
        max(answer["classes"], key=answer["classes"].get) == image.stem.removeprefix("class-")
        for answer, image in zip(answers, images, strict=True)
    ]
    assert sum(right) >= 6
    text = annealfit("predict", folder / "model.safetensors", images[0])
    assert "probability" in text.stdout
    assert not CONTROL.search(text.stdout)


def test_predict_takes_a_folder(run_folder, tmp_path):
    folder, _ = run_folder
    images = sorted((folder / "samples").glob("*.png"))
    answers = json.loads(annealfit("predict", folder, folder / "samples", "--json").stdout)
    assert [answer["image"] for answer in answers] == list(map(str, images))
    (tmp_path / "note.txt").write_text("no image")
    result = annealfit("predict", folder, tmp_path)
    assert result.returncode == 2
    assert f"{tmp_path} has no image" in result.stderr


def test_predict_refuses_what_is_not_an_image(run_folder, tmp_path):
    folder, _ = run_folder
    (tmp_path / "note.png").write_text("no image")
    result = annealfit("predict", folder, tmp_path / "note.png")
    assert result.returncode == 2
    assert "note.png is not a readable image" in result.stderr
    assert "Traceback" not in result.stderr


def test_predict_refuses_a_truncated_model(run_folder, tmp_path):
    folder, _ = run_folder
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9])
    result = annealfit("predict", tmp_path, next((folder / "samples").glob("*.png")))
    assert result.returncode == 2
    assert "cut short" in result.stderr


def test_a_run_folder_is_not_overwritten(run_folder):
    folder, _ = run_folder
    result = annealfit("train", "digits", "--max-iter", 60, "--out", folder)
    assert result.returncode == 2
    assert "--resume" in result.stderr


def test_history_as_parquet_and_table_as_json(tmp_path):
    import pandas

    result = annealfit("train", "digits", "--max-iter", 3, "--out", tmp_path / "r", "--history", "parquet", "--json")
    assert f"Run folder: {tmp_path / 'r'}" in result.stderr  # beside the document
    assert set(json.loads(result.stdout)) >= {"QUBO 3-bit", "Logistic optimum"}
    frame = pandas.read_parquet(tmp_path / "r" / "history.parquet")
    assert (frame["method"] == "QUBO 3-bit").sum() == 3


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "samples", "convergence.png"])
def test_files_of_no_run_are_not_overwritten(tmp_path, name):
    (tmp_path / name).mkdir() if name == "samples" else (tmp_path / name).write_text('{"mine": 1}')
    refused = pytest.raises(InvalidInputError, match=f"{name} is there, of no run")
    with refused, store.opened_run_folder(tmp_path, {"annealfit": "0"}, resume=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_a_killed_run_left_is_used_again(tmp_path):
    for _ in range(2):
        with store.opened_run_folder(tmp_path, {"annealfit": "0"}, resume=False):
            (tmp_path / "metrics.json").write_text("{}")


def test_interrupted_with_control_c_and_resumed(tmp_path):
    """SIGINT ends the training with a table and a model; --resume goes on to what one run would have given."""
    common = ["--preset", "matched", "--bits", 20, "--max-iter", 4000]
    process = subprocess.Popen(
        [sys.executable, "-m", "annealfit", "train", "digits", *map(str, common), "--out", str(tmp_path / "a")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_interrupt,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "a" / store.CHECKPOINT_FILE).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Interrupted after" in stdout
    assert "UserWarning" not in stderr
    assert "--resume" in stdout
    assert (tmp_path / "a" / "model.safetensors").exists()
    short = [*common[:-1], 120]
    first = annealfit("train", "digits", *short, "--out", tmp_path / "b")
    assert first.returncode == 0
    resumed = annealfit("train", "digits", *common[:-1], 140, "--out", tmp_path / "b", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    whole = annealfit("train", "digits", *common[:-1], 140, "--out", tmp_path / "c")
    assert whole.returncode == 0
    losses = [json.loads((tmp_path / name / "metrics.json").read_text())["QUBO 20-bit"]["loss"] for name in "bc"]
    assert losses[0] == losses[1]


def test_a_terminal_gets_a_live_bar_with_loss_accuracy_and_time_left(tmp_path):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "annealfit", "train", "digits", "--preset", "matched", "--max-iter", "1500",
         "--out", str(tmp_path / "r")],
        stdout=child, stderr=child, stdin=child, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(child)
    seen = b""
    while True:
        ready, _, _ = select.select([parent], [], [], 120)
        try:
            chunk = os.read(parent, 65536) if ready else b""
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(parent)
    assert process.wait(timeout=60) == 0
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen).decode()
    assert re.search(r"Training .*\d+/1500 .*loss \d+\.\d+ .*accuracy \d+\.\d%.*0:\d\d:\d\d", text)


def default_interrupt():
    """Ctrl-C as in a terminal, also where the tests run in the background of a shell that ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_every_command_has_json(tmp_path):
    export = annealfit("export", "digits", "--bits", 2, "-o", tmp_path / "p.bqm", "--json")
    assert json.loads(export.stdout)["variables"] == 38
    assert json.loads(annealfit("datasets", "fetch", "digits", "--json").stdout) == {"files": []}
    annealfit("reproduce", "digits", "--preset", "annealfit", "--seeds", 42, "--out", tmp_path / "runs", "--json")
    report = annealfit("report", tmp_path / "runs", "-o", tmp_path / "report.html", "--json")
    assert json.loads(report.stdout) == {"files": [str(tmp_path / "report.html")]}


@pytest.mark.parametrize("file_format", ["bqm", "coo", "ising", "npz", "qubo"])
def test_export_writes_every_format(tmp_path, file_format):
    path = tmp_path / "problem"
    result = annealfit("export", "digits", "--format", file_format, "--bits", 2, "--class", 3, "-o", path)
    assert result.returncode == 0, result.stderr
    assert re.search("class 3 of digits, 38 variables, [0-9]+ couplings", result.stdout)
    if file_format == "bqm":
        with path.open("rb") as file:
            assert dimod.BinaryQuadraticModel.from_file(file).num_variables == 38


def test_datasets_lists_the_names():
    assert "digits" in annealfit("datasets").stdout
    listed = json.loads(annealfit("datasets", "--json").stdout)
    assert [row["name"] for row in listed] == ["digits", "mnist", "fashion_mnist", "cifar10", "emnist", "kmnist"]
    assert listed[0]["available"]


def test_fetching_offline_says_what_is_missing(tmp_path):
    environment = {**os.environ, "ANNEALFIT_DATA": str(tmp_path)}
    program = [sys.executable, "-m", "annealfit", "datasets", "fetch"]
    result = subprocess.run([*program, "mnist", "--offline"], env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert "train-images-idx3-ubyte" in result.stderr
    assert "Traceback" not in result.stderr
    nothing = subprocess.run([*program, "digits"], env=environment, capture_output=True, text=True, check=True)
    assert "nothing to fetch" in nothing.stdout


def test_train_on_a_folder_of_ones_own_images(tmp_path):
    generator = np.random.default_rng(0)
    for label, brightness in (("dark", 60), ("light", 190)):
        (tmp_path / "mine" / label).mkdir(parents=True)
        for index in range(20):
            pixels = np.clip(generator.normal(brightness, 20, size=(12, 12)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mine" / label / f"{index}.png")
    result = annealfit("train", tmp_path / "mine", "--out", tmp_path / "run", "--json", "--filters", 2)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["QUBO 3-bit"]["test"]["accuracy"] > 0.9
    answer = annealfit("predict", tmp_path / "run", tmp_path / "mine" / "dark" / "0.png", "--json")
    assert next(iter(json.loads(answer.stdout)[0]["classes"])) == "dark"


@pytest.mark.parametrize("command", ["train", "predict", "export", "datasets", "datasets fetch", "reproduce", "report"])
def test_help_teaches_with_an_example(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert f"annealfit {command}" in result.output.split("Example", 1)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digits", "--bits", "0"], "at least 1 and at most 30"),
        (["train", "digits", "--kernel", "9"], "larger than its input"),
        (["train", "digits", "--standardize", "maybe"], "'features', 'none', 'pixels'"),
        (["train", "digits", "--resume"], "--resume needs --out"),
        (["train", "imagenet"], "digits"),
        (["train", "digits", "--resume", "--out", "typo"], "no run to continue in typo"),
        (["export", "digits", "--class", "10", "-o", "x"], "0 to 9"),
        (["predict", "nowhere", "x.png"], "nowhere"),
        (["reproduce", "table3"], "'benchmark', 'digits'"),
        (["reproduce", "digits", "--seeds", "many"], "--seeds is 'many'; write whole numbers as 3, 1-20"),
    ],
)
def test_errors_are_one_clear_line(tmp_path, arguments, message):
    result = annealfit(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in re.sub(r"\s+", " ", result.stderr.replace("│", " "))
    assert "Traceback" not in result.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_reproduce_sets_the_papers_numbers_beside_ours_and_goes_on(tmp_path):
    arguments = ["reproduce", "digits", "sizes", "--preset", "annealfit", "--seeds", "42", "--out", tmp_path / "r"]
    first = annealfit(*arguments)
    assert first.returncode == 0, first.stderr
    assert "5 runs: 0 were there, 5 done now" in first.stdout
    assert "72,010 (72,010)" in first.stdout
    again = annealfit(*arguments)
    assert "5 runs: 5 were there, 0 done now" in again.stdout
    assert not CONTROL.search(again.stdout)


def test_version():
    assert re.fullmatch(r"annealfit \d+\.\d+\.\d+\n", annealfit("--version").stdout)


@pytest.mark.parametrize(("blocked", "note"), [("matplotlib", "annealfit[plot]"), ("dimod", None)])
def test_train_works_without_optional_packages_and_says_what_is_missing(tmp_path, blocked, note):
    program = (
        f"import sys; sys.modules[{blocked!r}] = None\n"  # as if it were not installed
        f"sys.argv = ['annealfit', 'train', 'digits', '--max-iter', '2', '--out', {str(tmp_path / 'r')!r}]\n"
        "from annealfit.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    if note:
        assert note in result.stdout
    assert (tmp_path / "r" / "model.safetensors").exists()

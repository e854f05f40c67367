"""`annealfit quantize`: a network in, a network out, as people use it."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from annealfit.cli import app, main
from annealfit.quantization import ROUNDING_METHODS, read_packed_weights

sys.path.insert(0, str(Path(__file__).parent.parent / "quantization"))
from small_networks import perceptron, run

runner = CliRunner()


@pytest.fixture
def folder(tmp_path):
    onnx.save(perceptron(), tmp_path / "model.onnx")
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(200, 12)))
    return tmp_path


def quantize(folder, *arguments, model="model.onnx"):
    command = ["quantize", str(folder / model), "--calibration", str(folder / "X.npy"), *arguments]
    return runner.invoke(app, command)


def test_a_small_network_is_written(folder):
    output, picture = folder / "small.onnx", folder / "errors.png"
    before = list(folder.iterdir())
    result = quantize(folder, "--bits", "1", "-o", str(output), "--plot", str(picture))
    assert result.exit_code == 0, result.output
    for word in ("first", "MatMul", "12×16", "second", "Gemm", "gptq", "annealed", "does not gain", "Written"):
        assert word in result.output
    small = onnx.load(output)
    assert set(read_packed_weights(output)) == {"w1", "w2"}
    assert sorted(folder.iterdir()) == sorted([*before, output, picture])
    sizes = [(folder / name).stat().st_size for name in ("model.onnx", "small.onnx")]
    assert "File: {:,} bytes before, {:,} packed".format(*sizes) in result.output
    assert run(small, np.load(folder / "X.npy")).shape == (200, 5)
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_json_has_every_number(folder):
    result = quantize(folder, "--levels", "ternary", "--keep", "second", "--method", "descent", "--json")
    found = json.loads(result.output)
    (layer,) = found["layers"]
    assert layer["levels"] == [-1, 0, 1]
    assert set(layer["errors"]) == {"nearest", "gptq", "gptq_search", "descent"}
    assert found["floats"] == {"second": "Gemm, kept"}
    assert found["written"] == []


def test_methods_are_compared_on_the_same_rows(folder):
    result = quantize(folder, "--compare", "--json")
    found = json.loads(result.output)
    by_method = {one["method"]: one for one in found["compared"]}
    assert list(by_method)[:4] == ["nearest", "GPTQ", "GPTQ, scales searched", "coordinate descent"]
    *_, own, theirs = found["compared"]
    assert own["method"] == "annealed, chosen on held-out rows"
    assert own["fidelity"] == found["held_out"]
    assert own["fidelity"]["divergence"] < 0.8 * by_method["GPTQ"]["fidelity"]["divergence"]
    assert theirs["fidelity"]["divergence"] < 0.1 * own["fidelity"]["divergence"]  # four times the bits
    assert by_method["GPTQ"]["fidelity"]["rows"] == theirs["fidelity"]["rows"] == 40
    alone = quantize(folder, "--method", "gptq", "--damping", "0", "--json")
    assert json.loads(alone.output)["held_out"] == by_method["GPTQ"]["fidelity"]
    assert "coordinate descent" in quantize(folder, "--compare").output


def test_bits_in_the_mean_rows_to_validate_on_and_a_line_for_each_layer(folder):
    np.save(folder / "V.npy", np.random.default_rng(1).normal(size=(70, 12)))
    result = quantize(folder, "--mean-bits", "7", "--method", "gptq", "--validation", str(folder / "V.npy"))
    assert result.exit_code == 0, result.output
    assert "Quantising, step 2 of 2: layer second" in result.output
    assert re.search(r"Network, calibration rows: divergence .*, error of the outputs .*%\.", result.output)
    assert "Network, 70 held-out rows: divergence" in result.output
    assert float(re.search(r"scales counted: ([\d.]+)\.\n", result.output)[1]) <= 7
    limited = quantize(folder, "--time-limit", "0", "--damping", "0.01", "--json")
    assert [layer["damping"] for layer in json.loads(limited.output)["layers"]] == [0.01, 0.01]
    assert json.loads(limited.output)["held_out"]["rows"] == 40
    both = quantize(folder, "--bits", "2", "--mean-bits", "2.5")
    assert "give one of them" in str(both.exception)


def test_a_sampler_by_its_word(folder):
    result = quantize(folder, "--bits", "1", "--sampler", "native:num_sweeps=10", "--json")
    assert result.exit_code == 0, result.output
    assert "SimulatedAnnealer" in json.loads(result.output)["layers"][0]["errors"]


def test_rows_that_are_larger_than_a_chip_are_solved_in_blocks(folder):
    result = quantize(folder, "--bits", "1", "--sampler", "native:num_sweeps=10", "--blocks", "8", "--json")
    assert result.exit_code == 0, result.output
    errors = json.loads(result.output)["layers"][0]["errors"]
    assert errors["BlockSampler"] < errors["nearest"]


def test_nothing_is_written_unless_asked(folder):
    before = sorted(folder.iterdir())
    result = quantize(folder, "--method", "nearest")
    assert "Add -o" in result.output
    assert sorted(folder.iterdir()) == before


def test_larger_networks_become_smaller(folder):
    onnx.save(perceptron(sizes=(12, 300, 5)), folder / "model.onnx")
    result = quantize(folder, "--method", "nearest", "-o", str(folder / "small.onnx"))
    before, after = ((folder / name).stat().st_size for name in ("model.onnx", "small.onnx"))
    assert f"{before:,} bytes before, {after:,} packed: {before / after:.1f} times smaller" in result.output
    assert before > 2 * after


def test_what_stays_float_is_named_first_and_last(folder):
    result = quantize(folder, "--keep", "second", "--method", "nearest")
    assert result.output.count("Stays float: second (Gemm, kept)") == 2
    assert result.output.startswith("Stays float")


def test_a_network_that_fails_leaves_no_file(folder):
    model = perceptron()
    model.graph.node[2].op_type = "NoSuchOperator"
    onnx.save(model, folder / "model.onnx")
    before = sorted(folder.iterdir())
    result = quantize(folder, "-o", str(folder / "small.onnx"))
    assert "NoSuchOperator" in str(result.exception)
    onnx.save(perceptron(sizes=(11, 16, 5)), folder / "model.onnx")
    result = quantize(folder, "-o", str(folder / "small.onnx"))
    assert "calibration has shape (200, 12)" in str(result.exception)
    assert sorted(folder.iterdir()) == before


def test_help_names_every_method():
    text = " ".join(re.sub(r"[│\n]", " ", runner.invoke(app, ["quantize", "--help"]).output).split())
    for word in ROUNDING_METHODS:
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "magic"], "method is 'magic'"),
        (["--bits", "12"], "bits is 12"),
        (["--bits", "0"], "bits is 0"),
        (["--time-limit", "nan"], "time_limit is nan"),
        (["-o", "small.safetensors"], "does not end in onnx"),
        (["-o", "{folder}/model.onnx"], "is the network itself"),
        (["--plot", "errors.docx"], "does not end in a format for figures"),
        (["--keep", "third"], "keep names"),
        (["--sampler", "magic"], "sampler is 'magic'"),
        (["--sampler", "native", "--method", "gptq"], "give one of them"),
        (["--blocks", "10"], "name one with --sampler"),
    ],
)
def test_errors_are_one_clear_line(folder, arguments, message, monkeypatch, capsys):
    given = [argument.format(folder=folder) for argument in arguments]
    command = ["annealfit", "quantize", str(folder / "model.onnx"), "--calibration", str(folder / "X.npy"), *given]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_layers_before_an_operator_without_a_derivative_are_named(folder):
    model = perceptron()
    model.graph.node[2].op_type = "Elu"
    onnx.save(model, folder / "elu.onnx")
    result = quantize(folder, "--method", "descent", model="elu.onnx")
    assert result.exit_code == 0, result.output
    assert "Along its own error: first (no derivative of Elu is known)" in result.output
    found = json.loads(quantize(folder, "--method", "descent", "--json", model="elu.onnx").output)
    assert found["unknown"] == {"first": "Elu"}
    assert found["layers"][0]["objective"] == "layer"


def test_an_interruption_leaves_the_file_that_was_there(folder, monkeypatch):
    output = folder / "small.onnx"
    output.write_bytes(b"before")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("annealfit.quantization.network.refit_network", interrupted)
    before = sorted(folder.iterdir())
    assert quantize(folder, "-o", str(output)).exit_code != 0
    assert output.read_bytes() == b"before"
    assert sorted(folder.iterdir()) == before

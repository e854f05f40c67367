"""Rows of a layer on an annealer: what fits, what `annealfit hardware` says, and the mock QPU's answer."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from annealfit._support.errors import InvalidInputError
from annealfit.cli import app
from annealfit.hardware.feasibility import Workload, published_device
from annealfit.hardware.topologies import ideal_chip
from annealfit.quantization import Sampled, layer_problems, quantize_layer
from annealfit.samplers import MockQPU, QPUSampler
from annealfit.studies.hardware_study import parse_layer, row_example, study_hardware


def rows_of_a_layer(inputs, *bits):
    device = published_device(ideal_chip("P16"))
    workloads = [Workload(inputs, 64, number, iterations=1, bias=0) for number in bits]
    return list(study_hardware([device], workloads, {"layer": row_example}))


def test_a_row_of_180_weights_fits_at_one_bit_and_not_at_two():
    rows = rows_of_a_layer(180, 1, 2)
    assert [row.embeds for row in rows] == [True, False]
    assert [row.variables for row in rows] == [180, 360]
    assert rows[0].cost.calls == 64  # one row at a time
    assert rows[1].most_bits == 1
    assert 0 < rows[0].resolutions["layer"].share_below[0.015] < 1
    (longer,) = rows_of_a_layer(181, 1)
    assert not longer.embeds


def test_rows_are_the_problems_of_the_layer():
    generator = np.random.default_rng(0)
    weights, inputs = generator.normal(size=(20, 3)), generator.normal(size=(50, 20))
    (size,) = {problem.n_variables for problem in layer_problems(weights, inputs, bits=1)}
    assert size == Workload(20, 3, 1, bias=0).variables
    assert row_example(30, 2).n_variables == 60


def test_the_command_shows_it():
    command = ["hardware", "--layer", "100x8", "--bits", "1,2", "--topology", "Z12"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "row / call" in result.output
    assert "Z12: at most 1 bit fits (100 of 184 variables); 2 bits need 200." in result.output
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert [(row["embeds"], row["features"], row["classes"]) for row in found["rows"]] == [
        (True, 100, 8),
        (False, 100, 8),
    ]


@pytest.mark.parametrize("text", ["180", "0x5", "axb", "5x", "-1x3"])
def test_bad_layers(text):
    with pytest.raises(InvalidInputError, match="as 180x64"):
        parse_layer(text)


def test_the_mock_qpu_quantises_long_rows():
    # Independent inputs: few couplings, so that noise and broken chains leave something to be seen.
    generator = np.random.default_rng(3)
    inputs = generator.normal(size=(4000, 48))
    weights = generator.normal(size=(48, 2))
    device = QPUSampler(MockQPU("Z12", seed=1), num_reads=20, backoff_seconds=0.0)
    plain, settled = (quantize_layer(weights, inputs, bits=1, method=Sampled(device, settle=s)) for s in (False, True))
    assert plain.error <= plain.errors["descent"] * (1 + 1e-9)
    assert plain.errors["QPUSampler"] < 0.9  # random levels have an error of more than 1
    assert settled.errors["QPUSampler"] < plain.errors["QPUSampler"]
    assert settled.errors["QPUSampler"] <= 1.1 * settled.errors["descent"]

"""What errors of a layer do to a network: S and ω against Jacobians, held-out rows, bits per layer, the refit."""

import itertools
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper
from scipy.special import log_softmax, softmax
from small_networks import constants_of, conv_net, model_of, perceptron, run

from annealfit._support.errors import InvalidInputError
from annealfit.quantization import quantize_network
from annealfit.quantization.onnx_graph import OnnxGraph, PartialRun, find_layers
from annealfit.quantization.sensitivity import Reference, compare, importances, least_divergence


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(1)
    return (0.3 * generator.normal(size=(400, 12)) @ generator.normal(size=(12, 12))).astype(np.float32)


def with_softmax(model):
    nodes = [*model.graph.node, helper.make_node("Softmax", ["y"], ["p"], name="softmax")]
    shape = [dim.dim_value or "N" for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return model_of(nodes, model.graph.initializer, shape, "p")


def found_importances(model, feeds):
    network = OnnxGraph(model)
    found, unknown = importances(network, find_layers(network)[0], Reference(network, feeds), 0)
    assert not unknown
    return found


def fisher_of(logits):
    p = softmax(logits.astype(float), axis=1)
    return np.einsum("nc,cd->ncd", p, np.eye(p.shape[1])) - p[:, :, None] * p[:, None, :]


def agrees(found, wanted):
    """Weights of rows are estimates with signs of their own; 0.6 of them all rows have alike."""
    wanted = 0.6 + 0.4 * wanted / wanted.mean()
    assert found.mean() == pytest.approx(1.0)
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.6
    order = np.argsort(wanted.ravel())
    for part in np.array_split(order, 5):
        assert found.ravel()[part].mean() == pytest.approx(wanted.ravel()[part].mean(), rel=0.1)


@pytest.mark.parametrize("end", [lambda model: model, with_softmax])
def test_of_a_perceptron_couplings_and_weights_are_those_of_its_jacobians(end):
    model = perceptron()
    generator = np.random.default_rng(1)
    rows = (0.3 * generator.normal(size=(20_000, 12)) @ generator.normal(size=(12, 12))).astype(np.float32)
    found = found_importances(end(model), [{"x": rows[:5000]}, {"x": rows[5000:]}])
    values = {name: value.astype(float) for name, value in constants_of(model).items()}
    hidden = rows @ values["w1"] + values["b1"]
    fisher = fisher_of(0.5 * np.maximum(hidden, 0) @ values["w2"].T + 2 * values["b2"])
    jacobian = 0.5 * values["w2"] * (hidden > 0)[:, None, :]  # (N, classes, hidden)
    each = np.einsum("nci,ncd,ndj->nij", jacobian, fisher, jacobian)
    for name, wanted in (("second", fisher), ("first", each)):
        mean = wanted.mean(axis=0)
        np.testing.assert_allclose(found[name].couplings[0], mean, atol=0.04 * mean.max())
        agrees(np.concatenate(found[name].weights, axis=1)[0], np.trace(wanted, axis1=1, axis2=2))


def test_of_outputs_that_are_no_distribution_errors_count_as_they_are():
    graph = conv_net(group=1).graph
    model = model_of(graph.node[:1], graph.initializer[:2], ["N", 4, 8, 7], "c")  # whose outputs have four axes
    images = np.random.default_rng(0).normal(size=(1200, 4, 8, 7)).astype(np.float32)
    found = found_importances(model, [{"x": images}])["conv"].couplings[0]
    maps = run(model, images).astype(float)
    places = maps.shape[2] * maps.shape[3]
    wanted = 2 * places * len(images) / (maps**2).sum()  # of ½‖φ‖², the mean square of which is 2
    np.testing.assert_allclose(found, wanted * np.eye(6), atol=0.03 * wanted)


def test_positions_count_by_themselves():
    # Of a convolution whose outputs are averaged: errors of two outputs add up at the positions where both matter.
    model = conv_net(group=1)
    images = np.random.default_rng(0).normal(size=(2000, 4, 8, 7)).astype(np.float32)
    found = found_importances(model, [{"x": images}])["conv"]
    (node, _) = find_layers(OnnxGraph(model))[0]
    maps = OnnxGraph(model).runner([node.output])({"x": images})[0]
    active, head = (maps > 0).astype(float), constants_of(model)["w"].astype(float)
    places = maps.shape[2] * maps.shape[3]
    fisher = np.einsum("ic,ncd,jd->nij", head, fisher_of(run(model, images)), head) / places**2
    wanted = np.einsum("niab,njab,nij->ij", active, active, fisher) / len(images)
    np.testing.assert_allclose(found.couplings[0], wanted, atol=0.1 * np.abs(wanted).max())
    agrees(found.weights[0][0], np.einsum("niab,nii->nab", active, fisher))


def test_groups_of_a_convolution_have_blocks():
    images = np.random.default_rng(0).normal(size=(30, 4, 8, 7)).astype(np.float32)
    found = found_importances(conv_net(), [{"x": images}])
    assert [part.shape for part in found["conv"].couplings] == [(3, 3), (3, 3)]
    assert [part.shape for part in found["head"].couplings] == [(3, 3)]
    assert found["conv"].weights[0].shape[:2] == (2, 30)


def test_few_rows_tell_no_couplings_but_weights(rows):
    found = found_importances(perceptron(sizes=(12, 40, 5)), [{"x": rows[:30]}])  # with four draws of signs each
    assert not found["first"].couplings
    assert found["second"].couplings
    assert found["first"].weights[0].shape == (1, 30)


def test_behind_an_operator_without_a_rule_the_own_error_counts_and_is_told(rows):
    model = perceptron()
    model.graph.node[2].op_type = "Elu"
    found = quantize_network(model, rows, 2, method="descent", along_loss=True)
    assert found.unknown == {"first": "Elu"}
    assert [layer.objective for layer in found] == ["layer", "loss"]
    assert found.held_out.divergence < quantize_network(model, rows, 2, method="gptq").held_out.divergence


def test_fidelity_is_the_divergence_of_probabilities_or_logits_and_else_the_error():
    generator = np.random.default_rng(0)
    before, after = generator.normal(size=(2, 50, 4))
    p, q = softmax(before, axis=1), softmax(after, axis=1)
    wanted = (p * (log_softmax(before, axis=1) - log_softmax(after, axis=1))).sum(axis=1).mean()
    for pair in ((p, q), (before, after)):
        found = compare([([pair[0][:20]], [pair[1][:20]]), ([pair[0][20:]], [pair[1][20:]])])
        assert found.divergence == pytest.approx(wanted, rel=1e-9)
        assert found.agreement == pytest.approx((before.argmax(1) == after.argmax(1)).mean())
        assert found.rows == 50
    cube, other = before.reshape(50, 2, 2), after.reshape(50, 2, 2)
    found = compare([([cube], [other])])
    assert found.divergence == found.error == pytest.approx(((cube - other) ** 2).sum() / (cube**2).sum())
    assert found.agreement is None


def test_along_the_loss_the_divergence_is_lower_and_told_on_held_out_rows():
    totals, generator = np.zeros(3), np.random.default_rng(1)
    rows = (0.3 * generator.normal(size=(2400, 12)) @ generator.normal(size=(12, 12))).astype(np.float32)
    for seed in range(3):
        model = perceptron(seed, sizes=(12, 40, 5))
        plain, along, chosen = (
            quantize_network(model, rows, 2, along_loss=one, method="descent", refit=False)
            for one in (False, True, None)
        )
        totals += [one.held_out.divergence for one in (plain, along, chosen)]
        assert [layer.objective for layer in (*plain, *along)] == ["layer", "layer", "loss", "loss"]
        held = rows[4::5]
        told = compare([([run(model, held)], [run(chosen.model, held)])])
        assert chosen.held_out.rows == 480
        assert chosen.held_out.divergence == pytest.approx(told.divergence, rel=1e-3)
    assert totals[1] < 0.9 * totals[0]
    assert totals[2] < 0.9 * totals[0]


def test_validation_rows_take_the_place_of_held_out_ones(rows, tmp_path):
    np.save(tmp_path / "V.npy", rows[300:])
    found = quantize_network(perceptron(), rows[:300], 2, method="gptq", validation=tmp_path / "V.npy")
    assert found.held_out.rows == 100
    whole = quantize_network(perceptron(), rows[:300], 2, method="gptq", validation=rows)
    np.testing.assert_array_equal(found.layers[0].levels, whole.layers[0].levels)
    few = quantize_network(perceptron(), rows[:19], 2, method="descent")
    assert few.held_out is None
    assert [(layer.damping, layer.objective) for layer in few] == [(0.0, "layer")] * 2


def test_few_rows_are_told_with_how_many_would_do(rows):
    with pytest.warns(UserWarning, match="25 calibration rows are few for the inputs of layer 'second': give 32 or"):
        quantize_network(perceptron(), rows[:25], 2, method="nearest", validation=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantize_network(perceptron(), rows[:32], 2, method="nearest", validation=rows)


def test_bits_of_least_divergence_are_those_of_brute_force():
    generator = np.random.default_rng(0)
    for _ in range(5):
        sizes = np.cumsum(generator.integers(1, 50, size=(5, 4)), axis=1)
        losses = np.sort(generator.exponential(size=(5, 4)), axis=1)[:, ::-1]
        budget = float(generator.integers(sizes[:, 0].sum(), sizes[:, -1].sum()))
        layers = np.arange(5)
        least = min(
            losses[layers, list(one)].sum()
            for one in itertools.product(range(4), repeat=5)
            if sizes[layers, list(one)].sum() <= budget
        )
        chosen = least_divergence(sizes, losses, budget)
        assert sizes[layers, chosen].sum() <= budget
        assert losses[layers, chosen].sum() == pytest.approx(least, rel=1e-6)


def test_mean_bits_keep_the_budget_and_beat_uniform_bits(rows):
    model = perceptron(sizes=(12, 40, 5))
    uniform = quantize_network(model, rows, 2, method="gptq")
    mixed = quantize_network(model, rows, mean_bits=uniform.mean_bits, method="gptq")
    assert mixed.mean_bits <= uniform.mean_bits + 1e-9
    roomy = quantize_network(model, rows, mean_bits=uniform.mean_bits + 1.5, method="gptq")
    assert uniform.mean_bits < roomy.mean_bits <= uniform.mean_bits + 1.5
    assert roomy.held_out.divergence < 0.9 * uniform.held_out.divergence
    with pytest.raises(InvalidInputError, match=r"mean_bits is 1; with 1 bits in every layer, scales counted, it is"):
        quantize_network(model, rows, mean_bits=1, method="descent")
    with pytest.raises(InvalidInputError, match="levels are 'ternary'"):
        quantize_network(model, rows, mean_bits=3, levels="ternary")


def test_beyond_a_time_limit_layers_are_rounded_by_descent(rows):
    found = quantize_network(perceptron(), rows, 2, time_limit=0.0)
    assert [layer.method for layer in found] == ["descent", "descent"]


def test_a_run_that_goes_from_layer_to_layer_computes_the_same(rows):
    network, feeds = OnnxGraph(conv_net()), []
    images = np.random.default_rng(0).normal(size=(30, 4, 8, 7)).astype(np.float32)
    feeds = [{"x": images[:20]}, {"x": images[20:]}]
    run_on, nodes = PartialRun(network, feeds), find_layers(network)[0]
    for node in nodes:
        wanted = network.runner([node.source, "y"])
        for found, feed in zip(list(run_on.at(node.output)), feeds, strict=True):
            source, end = wanted(feed)
            np.testing.assert_array_equal(found[node.source], source)
            np.testing.assert_array_equal(run_on.rest(found)(found)[0], end)


def test_a_refit_lowers_the_divergence_and_keeps_the_levels(rows, tmp_path):
    model = perceptron(sizes=(12, 40, 5))
    plain, fitted = (quantize_network(model, rows, 2, method="descent", refit=refit) for refit in (False, True))
    assert fitted.held_out.divergence < 0.9 * plain.held_out.divergence
    assert fitted.divergence < 0.9 * plain.divergence
    for one, other in zip(plain, fitted, strict=True):
        np.testing.assert_array_equal(one.levels, other.levels)
    written = fitted.save(tmp_path / "small.onnx").read_bytes()
    np.testing.assert_array_equal(run(onnx.load_from_string(written), rows), run(fitted.model, rows))


def test_a_refit_is_never_worse_on_held_out_rows(rows):
    for seed in range(4):
        model = perceptron(seed, sizes=(12, 20, 5))
        plain, fitted = (quantize_network(model, rows[:60], 3, damping=0.1, refit=one) for one in (False, True))
        assert fitted.held_out.divergence <= plain.held_out.divergence * (1 + 1e-5)

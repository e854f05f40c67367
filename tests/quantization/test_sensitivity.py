"""What errors of a layer do to a network: S against derivatives, the divergence, held-out rows, bits per layer."""

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
from annealfit.quantization.onnx_graph import OnnxGraph, Shown, find_layers
from annealfit.quantization.sensitivity import compare, corrections_of, least_divergence, output_weights_of


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(1)
    return (0.3 * generator.normal(size=(400, 12)) @ generator.normal(size=(12, 12))).astype(np.float32)


def with_softmax(model):
    nodes = [*model.graph.node, helper.make_node("Softmax", ["y"], ["p"], name="softmax")]
    shape = [dim.dim_value or "N" for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return model_of(nodes, model.graph.initializer, shape, "p")


def found_weights(model, feeds, seed=0):
    network = OnnxGraph(model)
    return {node.name: output_weights_of(node, Shown(network, feeds), seed) for node in find_layers(network)[0]}


@pytest.mark.parametrize("end", [lambda model: model, with_softmax])
def test_of_a_perceptron_they_are_those_of_its_derivatives(rows, end):
    model = perceptron()
    found = found_weights(end(model), [{"x": rows[:150]}, {"x": rows[150:]}])
    values = {name: value.astype(float) for name, value in constants_of(model).items()}
    hidden = rows @ values["w1"] + values["b1"]
    p = softmax(0.5 * np.maximum(hidden, 0) @ values["w2"].T + 2 * values["b2"], axis=1)
    fisher = np.einsum("nc,cd->ncd", p, np.eye(5)) - p[:, :, None] * p[:, None, :]
    jacobian = 0.5 * values["w2"] * (hidden > 0)[:, None, :]  # (N, classes, hidden)
    wanted = np.einsum("nci,ncd,ndj->ij", jacobian, fisher, jacobian) / len(rows)
    np.testing.assert_allclose(found["second"][0], fisher.mean(axis=0), atol=1e-3 * fisher.mean(axis=0).max())
    np.testing.assert_allclose(found["first"][0], wanted, atol=0.04 * wanted.max())  # steps cross kinks of the ReLU


def test_positions_count_with_random_signs():
    # Of a convolution whose outputs are averaged, S over all positions is 1/positions² times what its sum would be.
    model = conv_net(group=1)
    images = np.random.default_rng(0).normal(size=(600, 4, 8, 7)).astype(np.float32)
    found = found_weights(model, [{"x": images}])["conv"][0]
    (node, _) = find_layers(OnnxGraph(model))[0]
    maps = OnnxGraph(model).runner([node.output])({"x": images})[0]
    active, head = (maps > 0).astype(float), constants_of(model)["w"].astype(float)
    p = softmax(run(model, images).astype(float), axis=1)
    fisher = np.einsum("nc,cd->ncd", p, np.eye(3)) - p[:, :, None] * p[:, None, :]
    places = maps.shape[2] * maps.shape[3]
    together = np.einsum("niab,njab->nij", active, active) / places**2
    wanted = np.einsum("nij,ic,ncd,jd->ij", together, head, fisher, head) / len(images)
    np.testing.assert_allclose(found, wanted, atol=0.15 * np.abs(wanted).max())
    wrong = np.einsum("ni,nj,ic,ncd,jd->ij", *2 * [active.mean((2, 3))], head, fisher, head) / len(images)
    assert np.abs(found - wanted).max() < 0.2 * np.abs(found - wrong).max()


def test_groups_of_a_convolution_have_blocks():
    images = np.random.default_rng(0).normal(size=(30, 4, 8, 7)).astype(np.float32)
    found = found_weights(conv_net(), [{"x": images}])
    assert [part.shape for part in found["conv"]] == [(3, 3), (3, 3)]
    assert [part.shape for part in found["head"]] == [(3, 3)]


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


def test_along_the_loss_the_divergence_is_lower_and_told_on_held_out_rows(rows):
    totals = np.zeros(3)
    for seed in range(3):
        model = perceptron(seed, sizes=(12, 40, 5))
        plain, along, chosen = (
            quantize_network(model, rows, 3, along_loss=one, method="descent") for one in (False, True, None)
        )
        totals += [one.held_out.divergence for one in (plain, along, chosen)]
        assert [layer.along_loss for layer in (*plain, *along)] == [False, False, True, True]
        held = rows[4::5]
        told = compare([([run(model, held)], [run(chosen.model, held)])])
        assert chosen.held_out.rows == 80
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
    assert [(layer.damping, layer.along_loss) for layer in few] == [(0.0, False)] * 2


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


@pytest.mark.parametrize("model", [perceptron(sizes=(12, 6, 9)), conv_net(group=1)])
def test_scales_and_biases_that_are_off_are_found(model, rows):
    if len(model.graph.input[0].type.tensor_type.shape.dim) == 4:
        rows = np.random.default_rng(0).normal(size=(300, 4, 8, 7)).astype(np.float32)
    original, changed = OnnxGraph(model), OnnxGraph(model)
    (node, *_), _ = find_layers(original)
    factors, shifts = 0.01 * np.random.default_rng(3).normal(size=(2, 6))
    bias = original.constant(node.bias)
    changed.set_constant(
        node.weight, node.constant(node.matrix(original.constant(node.weight)) * (1 + factors).astype("f"))
    )
    changed.set_constant(node.bias, bias + shifts.astype("f"))
    now, before = (Shown(graph, [{"x": rows[:100]}, {"x": rows[100:]}]) for graph in (changed, original))
    found = corrections_of(node, now, before, bias + shifts, 1000)(1e-8)
    np.testing.assert_allclose(found[0], -factors, atol=3e-3)  # to first order, and the step crosses kinks
    np.testing.assert_allclose(found[1], -shifts, atol=3e-3)


def test_a_tensor_that_is_kept_changes_nothing_but_the_work(rows):
    network = OnnxGraph(perceptron())
    (_, node), _ = find_layers(network)
    plain = Shown(network, [{"x": rows[:100]}, {"x": rows[100:]}])
    kept = plain.at(node.source)
    assert kept.fed == node.source
    for count in (30, 150, 400, 1000):
        found, wanted = (output_weights_of(node, shown, 0, count)[0] for shown in (kept, plain))
        np.testing.assert_array_equal(found, wanted)
        assert sum(len(feed["x"]) for feed in kept.first(count).feeds) == min(count, 400)


def test_a_refit_lowers_the_divergence_and_keeps_the_levels(rows, tmp_path):
    model = perceptron(sizes=(12, 40, 5))
    plain, fitted = (quantize_network(model, rows, 2, method="descent", refit=refit) for refit in (False, True))
    assert fitted.held_out.divergence < 0.9 * plain.held_out.divergence
    assert fitted.divergence < 0.9 * plain.divergence
    for one, other in zip(plain, fitted, strict=True):
        np.testing.assert_array_equal(one.levels, other.levels)
    written = fitted.save(tmp_path / "small.onnx").read_bytes()
    np.testing.assert_array_equal(run(onnx.load_from_string(written), rows), run(fitted.model, rows))

"""The study: problems of digits on chips."""

from itertools import product

import numpy as np
import pytest

from annealfit import AnnealedClassifier, Method
from annealfit.hardware.feasibility import Workload, published_device
from annealfit.hardware.limits import ADVANTAGE, DeviceRanges, resolve
from annealfit.hardware.topologies import ideal_chip
from annealfit.studies.hardware_study import (
    MOST_VARIABLES_LOOKED_AT,
    class_examples,
    representative_problem,
    study_hardware,
)


def resolutions_of(features, bits, ranges=ADVANTAGE):
    """What a device of these ranges resolves of the problems of a class, by coordinates."""
    made = {basis: make(features, bits) for basis, make in class_examples().items()}
    return {basis: resolve(*problem.to_ising()[:2], ranges) for basis, problem in made.items()}


@pytest.mark.parametrize(
    ("bits", "shares"),
    [(3, [0.077, 0.155, 0.261]), (5, [0.436, 0.541, 0.651]), (10, [0.850, 0.882, 0.913])],
)
def test_shares_below_the_error_are_as_measured_on_digits(bits, shares):
    """With the usual chain strength; at ten bits the couplings alone set the scale."""
    fields, couplings, _ = representative_problem(18, bits, coordinates="raw").to_ising()
    resolution = resolve(fields, couplings, chain_prefactor=1.414)
    assert list(resolution.share_below.values()) == pytest.approx(shares, abs=5e-4)


def test_a_bit_more_widens_the_span_of_couplings_four_times():
    spans = [resolutions_of(18, bits)["raw"].span_of_couplings for bits in (2, 3, 10, 11)]
    assert np.diff(spans) == pytest.approx([2, 14, 2])
    assert 19 < spans[2] < 25


@pytest.mark.parametrize("coordinates", ["raw", "centred"])
def test_the_problem_is_digits_first_and_of_its_classes_the_one_with_the_largest_fields(digits_features, coordinates):
    problem = representative_problem(18, bits=2, coordinates=coordinates)
    classifier = AnnealedClassifier(bits=2, method=Method(coordinates=coordinates), random_state=42)
    classes = classifier.problems(*digits_features)
    assert np.array_equal(problem.curvature, classes[0].curvature)
    assert np.abs(problem.gradient).max() == max(np.abs(other.gradient).max() for other in classes)


@pytest.mark.parametrize("bits", [1, 3])
def test_centring_uncouples_the_bias_and_weakens_couplings_and_chains(bits):
    raw, centred = resolutions_of(18, bits).values()
    variables = 19 * bits
    assert raw.couplings == variables * (variables - 1) // 2
    assert centred.couplings == raw.couplings - 18 * bits * bits  # the bias's with all the weights
    assert centred.scale < raw.scale
    assert centred.chain_strength < raw.chain_strength == pytest.approx(2.0)
    assert centred.share_below[0.025] > raw.share_below[0.025]


@pytest.mark.parametrize("features", [1, 7, 9, 10, 40])
def test_any_number_of_features_can_be_had(features):
    assert representative_problem(features, bits=1).n_parameters == features + 1


def test_problems_too_large_to_look_at_are_left_out_and_ranges_matter():
    features = MOST_VARIABLES_LOOKED_AT
    (large,) = study_hardware([published_device(ideal_chip("Z12"))], [Workload(features, 10, 1)])
    assert large.resolutions == {}
    narrow = resolutions_of(18, 3, DeviceRanges(field=4, coupling=0.1, chain=2))["raw"]
    wide = resolutions_of(18, 3)["raw"]
    assert narrow.share_below[0.025] > wide.share_below[0.025]


def test_rows_come_for_every_device_and_combination_in_order():
    devices = [published_device(ideal_chip(name)) for name in ("P16", "Z12")]
    sizes = product([4, 18], [3, 2], [1, 12])
    workloads = [Workload(*numbers, reads=10, iterations=5) for numbers in sizes]
    rows = list(study_hardware(devices, workloads))
    assert [(row.chip, row.features, row.classes, row.bits) for row in rows] == [
        (chip, features, classes, bits)
        for chip in ("P16", "Z12")
        for features in (4, 18)
        for classes in (3, 2)
        for bits in (1, 12)
    ]
    assert [row.embeds for row in rows[:8]] == [True, True, True, True, True, False, True, False]
    assert all(row.cost.calls >= 5 for row in rows if row.embeds)
    of_two, of_three = (next(row for row in rows if row.classes == classes) for classes in (2, 3))
    assert of_two.placement.classes_at_once == 2
    assert of_three.placement.classes_at_once == 3

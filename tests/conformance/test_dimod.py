"""dimod's own conformance suite for samplers."""

import unittest

import dimod.testing
import pytest

from annealfit.samplers import DenseAnnealingSampler


@dimod.testing.load_sampler_bqm_tests(lambda: DenseAnnealingSampler())
class TestBinaryQuadraticModels(unittest.TestCase):
    """Generated: empty, tiny, spin and binary models of every BQM class."""


@pytest.mark.parametrize("check", [dimod.testing.assert_sampler_api])
def test_sampler_api(check):
    check(DenseAnnealingSampler())

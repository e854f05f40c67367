import io

import dimod
import numpy as np
import pytest
from dimod.serialization import coo
from hypothesis import given
from random_problems import problems, random_problem

from annealfit._support.errors import InvalidInputError
from annealfit.problems import export
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem


@given(problems(max_variables=40))
def test_largest_coefficient_is_the_bqms(problem):
    bqm = problem.to_bqm()
    biases = [abs(bias) for bias in (*bqm.linear.values(), *bqm.quadratic.values())]
    assert export.largest_coefficient(problem) == pytest.approx(max(biases), rel=1e-12)


@pytest.mark.parametrize("bits", [1, 3, 10, 20])
def test_bqm_file_is_exact(tmp_path, bits):
    problem = random_problem(1, 4, bits)
    path = export.write(problem, tmp_path / "p.bqm", format="bqm")
    with path.open("rb") as file:
        assert dimod.BinaryQuadraticModel.from_file(file) == problem.to_bqm()


@pytest.mark.parametrize("bits", [1, 3, 10, 20])
def test_text_files_lose_no_coefficient(tmp_path, bits):
    """dimod's own writer would keep six decimals; at 20 bits that zeroes most of the problem."""
    problem = random_problem(1, 4, bits)
    bqm = problem.to_bqm()
    bqm.offset = 0  # the format has no place for it
    binary = coo.loads(export.write(problem, tmp_path / "p.coo", format="coo").read_text())
    assert binary == bqm
    spin = coo.loads(export.write(problem, tmp_path / "p.ising", format="ising").read_text())
    fields, couplings, _ = problem.to_ising()
    assert spin.vartype is dimod.SPIN
    assert spin == dimod.BinaryQuadraticModel.from_ising(
        dict(enumerate(fields)),
        {(i, j): couplings[i, j] for i, j in zip(*np.nonzero(couplings), strict=True)},
    )
    if bits == 20:
        lossy = coo.loads(coo.dumps(bqm, vartype_header=True))
        assert sum(bias == 0 for bias in lossy.quadratic.values()) > 100


def test_the_offset_stands_in_the_header(tmp_path):
    problem = random_problem(1, 2, 2)
    header = export.write(problem, tmp_path / "p.coo", format="coo").read_text().splitlines()[2]
    assert float(header.removeprefix("# offset=")) == problem.to_qubo()[1]


def test_an_npz_file_has_the_factored_problem_bit_for_bit(tmp_path):
    problem = random_problem(2, 5, 7)
    with np.load(export.write(problem, tmp_path / "p.npz", format="npz")) as archive:
        np.testing.assert_array_equal(archive["curvature"], problem.curvature)
        np.testing.assert_array_equal(archive["gradient"], problem.gradient)
        assert Encoding(archive["bits"].item(), archive["range"].item()) == problem.encoding
        np.testing.assert_array_equal(archive["qubo"], problem.to_qubo()[0])


def test_unknown_format(tmp_path):
    with pytest.raises(InvalidInputError, match="'bqm', 'bqpjson', 'coo', 'ising', 'npz'"):
        export.write(random_problem(0, 1, 1), tmp_path / "x", format="xml")
    assert not list(tmp_path.iterdir())


def test_a_dense_export_beyond_memory_is_refused_at_once():
    size = 600
    problem = QuadraticProblem(np.eye(size), np.zeros(size), Encoding(30, 0.5))
    with pytest.raises(InvalidInputError, match=r"18000 variables takes .* GiB"):
        problem.to_qubo()


def test_a_failing_write_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    problem = random_problem(0, 2, 2)
    path = export.write(problem, tmp_path / "p.coo", format="coo")
    before = path.read_bytes()

    def disk_full(problem, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(export.FORMATS, "coo", disk_full)
    with pytest.raises(OSError, match=r"No space left on device: .*p\.coo"):  # the system's error names no file
        export.write(problem, path, format="coo")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_writing_to_an_open_buffer():
    buffer = io.BytesIO()
    export.write_coo(random_problem(0, 1, 1), buffer)
    assert buffer.getvalue().startswith(b"# annealfit vartype=BINARY\n")

"""Files read back, by our reader and by other people's: the energies of random bits are the problem's."""

import dimod
import numpy as np
import pytest
from dimod.serialization import coo
from hypothesis import given, settings
from random_problems import problems, random_problem

from annealfit._support.errors import FileFormatError
from annealfit.problems import export
from annealfit.problems import importing as exported

EXACT = sorted(set(export.FORMATS) - {"ising"})  # an Ising model's numbers are sums of a QUBO's


def random_bits(problem):
    return np.random.default_rng(problem.n_variables).integers(0, 2, size=(16, problem.n_variables))


def energies_of(dense, bits):
    quadratic, offset = dense
    return np.einsum("ri,ij,rj->r", bits, quadratic, bits) + offset


def read_as_others_do(path, word):
    """A BQM from what the usual reader of the format makes of the file."""
    if word == "bqm":
        with path.open("rb") as file:
            return dimod.BinaryQuadraticModel.from_file(file)
    if word == "npz":
        with np.load(path) as archive:
            bqm = dimod.BinaryQuadraticModel(archive["qubo"], "BINARY")
            bqm.offset = float(archive["offset"])
        return bqm
    if word == "qubo":
        return dimod.BinaryQuadraticModel.from_qubo(read_as_qbsolv_does(path))
    return coo.loads(path.read_text())


def read_as_qbsolv_does(path):
    """As its manual has it: `c` comments, one program line, then as many nodes and couplers as that line says."""
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("c")]
    (program, kind, topology, max_nodes, n_nodes, n_couplers), rows = lines[0], lines[1:]
    assert (program, kind, topology) == ("p", "qubo", "0")
    nodes, couplers = rows[: int(n_nodes)], rows[int(n_nodes) :]
    assert all(int(i) == int(j) < int(max_nodes) for i, j, _ in nodes)
    assert all(int(i) < int(j) < int(max_nodes) for i, j, _ in couplers)
    assert len(couplers) == int(n_couplers)
    return {(int(i), int(j)): float(value) for i, j, value in rows}


@pytest.mark.parametrize("bits", [1, 3, 20])
@pytest.mark.parametrize("word", sorted(export.FORMATS))
def test_energies_of_a_file_are_the_problems(tmp_path, word, bits):
    problem = random_problem(3, 5, bits)
    path = export.write(problem, tmp_path / "problem.file", format=word)
    drawn = random_bits(problem)
    expected = problem.energy(drawn)
    allowed = 1e-12 * np.abs(problem.to_qubo()[0]).sum()
    np.testing.assert_allclose(energies_of(exported.read(path), drawn), expected, atol=allowed)

    other = read_as_others_do(path, word)
    states = 2 * drawn - 1 if other.vartype is dimod.SPIN else drawn
    reported = other.energies((states, range(problem.n_variables)))
    stated = export.file_offset(problem, word) if word in export.WITHOUT_OFFSET else 0.0
    assert abs(export.file_offset(problem, word)) > 1e-3  # or the next line would pass without it
    np.testing.assert_allclose(reported + stated, expected, atol=allowed)


@settings(max_examples=30)
@given(problems(max_variables=30))
def test_the_digest_does_not_depend_on_the_format(tmp_path_factory, problem):
    folder = tmp_path_factory.mktemp("formats")
    found = {exported.digest(exported.read(export.write(problem, folder / word, format=word))) for word in EXACT}
    assert found == {exported.digest(problem.to_qubo())}


def test_the_digest_tells_every_coefficient_apart():
    quadratic, offset = random_problem(1, 3, 2).to_qubo()
    other = quadratic.copy()
    other[0, 5] = other[5, 0] = np.nextafter(other[0, 5], 1)
    found = {exported.digest(dense) for dense in ((quadratic, offset), (other, offset), (quadratic, offset + 1e-9))}
    assert len(found) == 3


def test_the_notes_say_what_to_add():
    assert "lower by 0.25; add 0.25" in export.offset_note("coo", 0.25)
    assert "higher by 0.25; subtract 0.25" in export.offset_note("qubo", -0.25)
    assert export.offset_note("qubo", 0.0) is None
    assert export.offset_note("npz", 0.25) is None


def test_a_file_of_another_program_has_no_offset(tmp_path):
    (tmp_path / "other.qubo").write_text("c made elsewhere\np qubo 0 3 2 1\n0 0 1.5\n2 2 -1e-3\n0 2 4\n")
    quadratic, offset = exported.read(tmp_path / "other.qubo")
    assert offset == 0
    assert quadratic.tolist() == [[1.5, 0, 2], [0, 0, 0], [2, 0, -0.001]]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"# vartype=BINARY\n", b"0 0 1\n0 1\n", b"PK no zip", b"\xff\xfe"),
        *(b"p qubo 0 2 1 2\n0 0 1\n0 1 2\n", b"p qubo 0 2 2 1\n0 0 1\n0 1 2\n"),  # as many nodes, couplers
    ],
)
def test_what_is_no_problem_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FileFormatError, match="export it again"):
        exported.read(tmp_path / "file")


@pytest.mark.parametrize("word", sorted(export.WITHOUT_OFFSET))
def test_no_part_of_a_text_of_ours_is_taken_for_another_programs(tmp_path, word):
    """Whatever lines are lost at the beginning and at the end together: the rest is refused."""
    path = export.write(random_problem(1, 3, 2), tmp_path / "problem", format=word)
    lines = path.read_bytes().splitlines(keepends=True)
    for first in range(len(lines)):
        for last in range(first + 1, len(lines) + (first > 0)):
            path.write_bytes(b"".join(lines[first:last]))
            with pytest.raises(FileFormatError):
                exported.read(path)
    for lost in range(1, 4):  # the comments after the first line, and the last lines
        path.write_bytes(b"".join([lines[0], *lines[1 + lost : -lost]]))
        with pytest.raises(FileFormatError):
            exported.read(path)


@pytest.mark.parametrize("vartype", ["BINARY", "SPIN"])
def test_dimods_own_texts_are_read_where_they_say_what_they_are_about(tmp_path, vartype):
    bqm = dimod.BinaryQuadraticModel({0: 1.5, 1: -2.0}, {(0, 1): 0.25}, 0.0, vartype)
    (tmp_path / "file").write_text(coo.dumps(bqm, vartype_header=True))
    bits = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    states = bits if vartype == "BINARY" else 2 * bits - 1
    np.testing.assert_allclose(energies_of(exported.read(tmp_path / "file"), bits), bqm.energies((states, [0, 1])))
    (tmp_path / "file").write_text(coo.dumps(bqm))
    with pytest.raises(FileFormatError, match="# vartype=BINARY"):
        exported.read(tmp_path / "file")


def test_texts_of_0_1_0_are_read(tmp_path):
    (tmp_path / "file").write_text("# vartype=BINARY\n# offset=0.5\n0 0 1.5\n0 1 0.5\n1 1 -2.0\n")
    assert exported.read(tmp_path / "file")[1] == 0.5

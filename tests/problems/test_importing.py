"""Files read back, by our reader and by other people's: the energies of random bits are the problem's."""

import json

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
    if word in ("qs", "sparse"):
        return dimod.BinaryQuadraticModel(read_as_biq_mac_does(path), "BINARY")
    if word == "bqpjson":
        return read_bqpjson(path)
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


def read_as_biq_mac_does(path):
    """Comments, then `n m`, then m entries of a symmetric matrix, counted from 1; nothing follows."""
    lines = path.read_text().splitlines()
    start = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    size, count = map(int, lines[start].split())
    matrix = np.zeros((size, size))
    for line in lines[start + 1 :]:
        row, column, value = line.split()
        assert int(row) <= int(column)
        matrix[int(row) - 1, int(column) - 1] = matrix[int(column) - 1, int(row) - 1] = float(value)
    assert np.count_nonzero(np.triu(matrix)) == count == len(lines) - start - 1
    return matrix


def read_bqpjson(path):
    """As its documentation has it: scale · (quadratic + linear + offset)."""
    document = json.loads(path.read_text())
    assert document["variable_ids"] == list(range(len(document["variable_ids"])))
    quadratic = {(term["id_tail"], term["id_head"]): term["coeff"] for term in document["quadratic_terms"]}
    assert all(i < j and value != 0 for (i, j), value in quadratic.items())
    linear = {term["id"]: term["coeff"] for term in document["linear_terms"]}
    kind = {"boolean": "BINARY", "spin": "SPIN"}[document["variable_domain"]]
    bqm = dimod.BinaryQuadraticModel(linear, quadratic, document["offset"], kind)
    bqm.scale(document["scale"])
    return bqm


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


def test_a_file_of_qoblib(tmp_path):
    text = "# ObjectiveOffset 7\n# Vars Non-zeros\n3 3\n1 1 -4\n1 3 2.5\n2 3 1\n"
    for name, content in (("a.file", text), ("a.qs", text), ("a.sparse", text.partition("zeros\n")[2])):
        (tmp_path / name).write_text(content)
        quadratic, offset = exported.read(tmp_path / name)
        assert quadratic.tolist() == [[-4, 0, 2.5], [0, 0, 1], [2.5, 1, 0]]
        assert offset == (0 if name == "a.sparse" else 7)
    (tmp_path / "graph").write_text(text.partition("zeros\n")[2])
    with pytest.raises(FileFormatError, match=r"may be a graph, .* name it \.qs or \.sparse"):
        exported.read(tmp_path / "graph")
    for wrong in ("1 3 2.5\n1 3", "1 3 2.5\n1 4", "1 3", ""):
        (tmp_path / "a.qs").write_text(text.replace("1 3 2.5\n2 3", wrong))
        with pytest.raises(FileFormatError):
            exported.read(tmp_path / "a.qs")


def test_bqpjson_over_spins_with_a_scale_and_ids_of_a_chip(tmp_path):
    document = {"version": "1.0.0", "id": 1, "metadata": {}, "variable_domain": "spin", "variable_ids": [9, 4]}
    document |= {"scale": 0.5, "offset": 3.0, "linear_terms": [{"id": 4, "coeff": 2.0}]}
    document |= {"quadratic_terms": [{"id_tail": 9, "id_head": 4, "coeff": -1.5}]}
    (tmp_path / "p.json").write_text(json.dumps(document))
    bits = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    spins = 2 * bits - 1
    expected = 0.5 * (2 * spins[:, 0] - 1.5 * spins[:, 0] * spins[:, 1] + 3)
    np.testing.assert_allclose(energies_of(exported.read(tmp_path / "p.json"), bits), expected, rtol=1e-15)


@pytest.mark.parametrize("word", sorted(set(export.FORMATS) - {"bqm", "npz"}))
def test_a_changed_number_is_noticed(tmp_path, word):
    path = export.write(random_problem(1, 3, 2), tmp_path / "problem", format=word)
    text = path.read_text()
    place = text.rindex("1")
    path.write_text(f"{text[:place]}2{text[place + 1 :]}")
    with pytest.raises(FileFormatError, match="digest"):
        exported.read(path)


# The lines of qs without any comment are what Biq Mac has: only the offset would be lost.
@pytest.mark.parametrize("word", sorted(export.WITHOUT_OFFSET - {"qs", "sparse"}))
def test_no_part_of_a_text_of_ours_is_taken_for_another_programs(tmp_path, word):
    """Whatever lines are lost at the beginning and at the end together: the rest is refused."""
    path = export.write(random_problem(1, 3, 2), tmp_path / "problem", format=word)
    *lines, end = path.read_bytes().splitlines(keepends=True)
    whole = exported.digest(exported.read(path))
    path.write_bytes(b"".join(lines))
    assert exported.digest(exported.read(path)) == whole  # only the last comment is lost
    lines.append(end)
    for first in range(len(lines)):
        for last in range(first + 1, len(lines) + (first > 0) - (first == 0)):
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


@pytest.mark.parametrize("word", ["bqm", "npz"])
def test_a_changed_number_of_a_binary_file_is_noticed(tmp_path, word):
    problem = random_problem(1, 3, 2)
    path = export.write(problem, tmp_path / "problem", format=word)
    if word == "npz":
        with np.load(path) as archive:
            arrays = dict(archive)
        arrays["qubo"][0, 0] += 1e-9
        with path.open("wb") as file:
            np.savez(file, **arrays)
    else:
        content = path.read_bytes()
        bias = np.float64(problem.to_qubo()[0][0, 0]).tobytes()
        assert content.count(bias) == 1
        path.write_bytes(content.replace(bias, np.float64(1.25).tobytes()))
    with pytest.raises(FileFormatError, match="digest"):
        exported.read(path)


def test_bqm_files_of_other_programs_with_labels_and_spins(tmp_path):
    bqm = dimod.BinaryQuadraticModel({7: 1.5, 3: -2.0, 5: 0.5}, {(7, 5): 0.25, (3, 7): -1.0}, 0.75, "SPIN")
    (tmp_path / "file").write_bytes(bqm.to_file().read())
    bits = np.array([[b >> k & 1 for k in range(3)] for b in range(8)])
    np.testing.assert_allclose(
        energies_of(exported.read(tmp_path / "file"), bits), bqm.energies((2 * bits - 1, [3, 5, 7]))
    )


def test_a_bqm_file_that_couples_variables_that_are_not_there_is_refused(tmp_path):
    content = bytearray(dimod.BinaryQuadraticModel({}, {(0, 1): 0.25}, 0.0, "BINARY").to_file().read())
    place = bytes(content).rindex(np.int32(1).tobytes() + np.float64(0.25).tobytes())
    for other in (5, -1):
        content[place : place + 4] = np.int32(other).tobytes()
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(FileFormatError, match="couples variables that it does not have"):
            exported.read(tmp_path / "file")


def test_a_bqm_file_whose_couplings_are_nowhere_is_refused(tmp_path):
    content = bytearray(dimod.BinaryQuadraticModel({}, {(0, 1): 0.25}, 0.0, "BINARY").to_file().read())
    place = 14 + int.from_bytes(content[10:14], "little") + 8  # behind the header and the offset
    for other in (-(2**28), 1, 5):
        content[place : place + 4] = np.int32(other).tobytes()
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(FileFormatError, match="not in order"):
            exported.read(tmp_path / "file")


@pytest.mark.parametrize("word", ["coo", "qs"])
def test_a_text_whose_digest_was_overwritten_is_refused(tmp_path, word):
    problem = random_problem(seed=1, n_parameters=2, bits=2)
    path = export.write(problem, tmp_path / f"problem.{word}", format=word)
    content = path.read_bytes()
    place = content.index(b"digest=")
    for damaged in (
        content[:place] + b'x sha256\\": \\"' + content[place + 7 :],  # as in another file of ours
        content[: place - 5] + bytes(12) + content[place + 7 :],
    ):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"does not match its digest|control characters"):
            exported.read(path)


def test_texts_of_0_2_0_are_read(tmp_path):
    digest = "0" * 64  # of the lines; it is no longer looked at
    lines = ["# annealfit vartype=BINARY", "# offset=0.5", f"# annealfit sha256={digest}", "0 0 1.5", "0 1 0.5"]
    (tmp_path / "file").write_text("\n".join([*lines, "# annealfit sha256=above", ""]))
    quadratic, offset = exported.read(tmp_path / "file")
    assert (quadratic.tolist(), offset) == ([[1.5, 0.25], [0.25, 0.0]], 0.5)


def test_texts_of_0_1_0_are_read(tmp_path):
    (tmp_path / "file").write_text("# vartype=BINARY\n# offset=0.5\n0 0 1.5\n0 1 0.5\n1 1 -2.0\n")
    assert exported.read(tmp_path / "file")[1] == 0.5

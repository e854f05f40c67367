"""Embeddings on disk: read back as they were found, checked against the chip, remade where the file is wrong."""

from __future__ import annotations

import json
import os
import sys
import warnings
from itertools import combinations

import dwave.graphs
import pytest
from dwave.embedding import is_valid_embedding

from annealfit.hardware import chip as chips
from annealfit.hardware.chip import Chip, cache_folder

GRAPH = dwave.graphs.zephyr_graph(3)
SIZE, ASKED = 12, 4


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEALFIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def searches(monkeypatch):
    """How often minorminer was asked."""
    done = []
    real = chips._find_clique
    monkeypatch.setattr(chips, "_find_clique", lambda *arguments: (done.append(1), real(*arguments))[1])
    return done


def file_of(cache, size=SIZE, asked=ASKED):
    (found,) = cache.glob(f"embeddings/*/{size}x{asked}.json")
    return found


def rewrite(path, change):
    """The file with its content changed."""
    content = json.loads(path.read_text())["content"]
    change(content)
    path.write_text(json.dumps({"content": content}))


def test_what_was_found_is_read_back_and_nothing_is_searched(cache, searches):
    found = Chip("first", GRAPH).tiles(SIZE, ASKED)
    assert len(found) > 1
    assert searches
    searches.clear()
    again = Chip("second", GRAPH.copy())
    assert again.tiles(SIZE, ASKED) == found
    assert again.clique(SIZE) == Chip("third", GRAPH).clique(SIZE) == found[0]
    assert not searches
    assert not list(cache.rglob("*.part"))


def test_without_a_store_the_same_is_found(cache, monkeypatch):
    kept = [Chip("kept", GRAPH).tiles(n, ASKED) for n in (2, 9, SIZE) for _ in range(2)]
    monkeypatch.setenv("ANNEALFIT_CACHE", "")
    assert cache_folder() is None
    assert [Chip("searched", GRAPH).tiles(n, ASKED) for n in (2, 9, SIZE) for _ in range(2)] == kept


def test_another_chip_size_or_number_is_another_file(cache, searches):
    Chip("all", GRAPH).tiles(SIZE, ASKED)
    fewer_couplers = GRAPH.copy()
    fewer_couplers.remove_edge(*next(iter(GRAPH.edges)))
    fewer_qubits = GRAPH.copy()
    fewer_qubits.remove_node(0)
    for graph, size, asked in (
        (fewer_couplers, SIZE, ASKED),
        (fewer_qubits, SIZE, ASKED),
        (GRAPH, SIZE + 1, ASKED),
        (GRAPH, SIZE, ASKED - 1),
    ):
        searches.clear()
        Chip("another", graph).tiles(size, asked)
        assert searches
    assert len({Chip("any", graph).digest for graph in (GRAPH, fewer_couplers, fewer_qubits)}) == 3
    assert len(list(cache.glob(f"embeddings/*/{SIZE}x{ASKED}.json"))) == 3


def test_another_version_of_the_search_does_not_read_the_files(cache, searches, monkeypatch):
    Chip("old", GRAPH).tiles(SIZE, ASKED)
    searches.clear()
    monkeypatch.setattr(chips, "SEARCH_VERSION", 2)
    Chip("new", GRAPH).tiles(SIZE, ASKED)
    assert searches


def truncated(path):
    path.write_bytes(path.read_bytes()[:-40])


def flipped(path):
    payload = bytearray(path.read_bytes())
    payload[len(payload) // 2] ^= 1
    path.write_bytes(payload)


def foreign(path):
    path.write_text('{"embedding": {"0": [1, 2]}}')


def nested(path):
    path.write_text("[" * 100_000)


def enormous(path):
    with path.open("wb") as file:
        file.truncate(30_000_000)


def piped(path):
    path.unlink()
    os.mkfifo(path)


def a_folder(path):
    path.unlink()
    path.mkdir()


# Changes to the content that only a look at the chip finds.
def a_broken_chain(content):
    here, there = content["tiles"][0][0], content["tiles"][1][0]  # of two tiles, so never coupled
    here[-1], there[-1] = there[-1], here[-1]


def a_qubit_that_is_not_there(content):
    content["tiles"][0][0][0] = 10**9


def pairs_that_are_not_coupled(content):
    content["tiles"][0] = [chain[:1] for chain in content["tiles"][0]]


def a_qubit_taken_twice(content):
    content["tiles"][1] = content["tiles"][0]


def a_chain_too_few(content):
    content["tiles"][0].pop()


def an_empty_chain(content):
    content["tiles"][0][0] = []


def a_text_for_a_qubit(content):
    content["tiles"][0][0][0] = "1"


def no_list_of_tiles(content):
    content["tiles"] = {}


def no_tiles(content):
    content["tiles"] = []


DAMAGES = [truncated, flipped, foreign, nested, enormous, a_folder, *([piped] if sys.platform != "win32" else [])]
LIES = [
    a_broken_chain,
    a_qubit_that_is_not_there,
    pairs_that_are_not_coupled,
    a_qubit_taken_twice,
    a_chain_too_few,
    an_empty_chain,
    a_text_for_a_qubit,
    no_list_of_tiles,
    no_tiles,
]


@pytest.mark.parametrize("harm", [*DAMAGES, *LIES], ids=lambda harm: harm.__name__)
def test_a_file_that_is_not_what_it_says_is_remade_with_a_word(cache, searches, harm):
    found = Chip("first", GRAPH).tiles(SIZE, ASKED)
    path = file_of(cache)
    if harm in LIES:
        rewrite(path, harm)
    else:
        harm(path)
    searches.clear()
    with pytest.warns(UserWarning, match=f"a file of embeddings is not used, and made again: .*{path.name}"):
        assert Chip("second", GRAPH).tiles(SIZE, ASKED) == found
    assert searches
    if harm not in (a_folder, piped):  # what is no file is left alone
        searches.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert Chip("third", GRAPH).tiles(SIZE, ASKED) == found
        assert not searches


def test_whatever_bit_flips_what_is_read_embeds(cache):
    Chip("first", GRAPH).tiles(SIZE, ASKED)
    path = file_of(cache)
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        payload = bytearray(whole)
        payload[bit // 8] ^= 1 << bit % 8
        path.write_bytes(payload)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tiles = chips._read_tiles(path, SIZE, ASKED, GRAPH) or ()
        for tile in tiles:  # a qubit may become another one that will do
            assert is_valid_embedding(tile, list(combinations(range(SIZE), 2)), GRAPH)


def test_a_cache_that_cannot_be_written_to_costs_only_time(tmp_path, monkeypatch, searches):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("ANNEALFIT_CACHE", str(blocked))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiles = [Chip("one", GRAPH).tiles(SIZE, ASKED) for _ in range(2)]
    assert tiles[0] == tiles[1] != ()
    assert blocked.read_text() == "in the way"


def test_a_full_disk_costs_only_time_and_leaves_nothing(cache, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("annealfit._support.files.os.fsync", full)
    assert Chip("one", GRAPH).tiles(SIZE, ASKED)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_without_a_home_nothing_is_kept(monkeypatch):
    monkeypatch.delenv("ANNEALFIT_CACHE")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"~/.cache/{name}")
    assert cache_folder() is None
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: os.path.join(os.sep, "caches", name))
    assert cache_folder().name == "annealfit"


def test_no_clique_is_not_kept(cache, searches):
    chip = Chip("small", dwave.graphs.zephyr_graph(1))
    largest = chip.largest_clique
    assert chip.clique(largest + 1) is None
    assert not list(cache.glob(f"embeddings/*/{largest + 1}x1.json"))

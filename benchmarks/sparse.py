"""Wide sparse rows beside LogisticRegression: `python -m benchmarks.sparse`.

Made-up texts of 60 words from ten or 200 topics, as TF-IDF. Every fit has a process of its own, for its peak memory;
processor seconds are those of the fit alone, the least of three processes.
"""

import json
import resource
import subprocess
import sys
import time
import warnings

from benchmarks.timing import print_table

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier
from annealfit.training.objectives import LinearHead

SIZES = ((3_000, 10), (10_000, 10), (25_000, 10), (100_000, 10), (3_000, 200))  # columns and classes
ROWS, WORDS, PENALTY, TURNS = 4000, 60, 1e-3, 3


def texts(width, classes=10):
    """Return TF-IDF (ROWS, width) and topics: word frequencies follow Zipf's law, and differ between topics."""
    generator, y = np.random.default_rng(0), np.arange(ROWS) % classes
    words = np.empty((ROWS, WORDS), int)
    for topic in range(classes):
        frequencies = np.exp(0.7 * generator.normal(size=width)) / np.arange(1, width + 1)
        own = (y == topic).sum(), WORDS
        words[y == topic] = generator.choice(width, size=own, p=frequencies / frequencies.sum())
    counts = csr_array((np.ones(words.size), (np.repeat(np.arange(ROWS), WORDS), words.ravel())), shape=(ROWS, width))
    return TfidfTransformer().fit_transform(counts), y


def measure(ours, width, classes):
    """Return processor seconds, mebibytes of memory beyond the data's, the loss that was reached, and iterations."""
    X, y = texts(width, classes)
    model = AnnealedClassifier(random_state=0) if ours else LogisticRegression(C=1 / (PENALTY * ROWS), max_iter=1000)
    if ours:
        model.fit(X[:50, :300], np.arange(50) % 3)  # loads compiled code
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - started
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    head = LinearHead.of_arrays(X, y, classes, PENALTY)
    loss = head.at(np.vstack([model.coef_.T, model.intercept_])).loss
    return seconds, memory, loss, int(np.max(model.n_iter_))


def main():
    rows, program = [], [sys.executable, "-W", "ignore", "-m", "benchmarks.sparse"]
    for size in SIZES:
        found = {True: [], False: []}
        for _ in range(TURNS):
            for ours, turns in found.items():
                turns.append(json.loads(subprocess.check_output([*program, *map(str, (int(ours), *size))])))
        (ours, memory, loss, iterations), (theirs, their_memory, their_loss, their_iterations) = map(
            min, found.values()
        )
        figures = [f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.1f}×", str(iterations), str(their_iterations)]
        ends = [f"{memory:.0f}", f"{their_memory:.0f}", f"{loss:.6f}", f"{their_loss:.6f}"]
        rows.append([*map(str, size), *figures, *ends])
    headings = [
        "ours s",
        "theirs s",
        "ratio",
        "iterations",
        "theirs",
        "ours MiB",
        "theirs MiB",
        "our loss",
        "their loss",
    ]
    print_table(
        "TF-IDF of 4,000 texts: a default fit and LogisticRegression, one thread",
        ["columns", "classes", *headings],
        rows,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:]:
        json.dump(measure(*map(int, sys.argv[1:])), sys.stdout)
    else:
        main()

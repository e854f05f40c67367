"""Side-by-side measurements, printed as ratios taken in one run: `python -m benchmarks`, or `make bench`."""

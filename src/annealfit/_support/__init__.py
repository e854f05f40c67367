"""What every package uses: errors, files, schemas, locks, threads, seeds."""

"""Chips of quantum annealers: clique embeddings, limits of a device, and what a training costs on it."""

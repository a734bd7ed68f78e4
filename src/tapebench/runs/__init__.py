"""Trainings that last: run directories, tracks, sweeps on cores and clusters, published results."""

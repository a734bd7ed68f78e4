"""Documents of the repository that are made of published results, never written by hand."""

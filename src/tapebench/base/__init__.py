"""What everybody may import: names, streams of randomness, files. Imports nothing of ours."""

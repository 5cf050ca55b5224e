"""Slurm's controller, as far as its programs print what it knows of jobs."""

"""The project's version. ``setup.py``, reports and cache keys read it here, and nowhere else."""

VERSION = "0.1.0"

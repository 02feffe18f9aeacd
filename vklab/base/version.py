"""Version of the package, which the course's must equal."""

__version__ = "0.1.0"

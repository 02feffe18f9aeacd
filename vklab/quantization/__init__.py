"""Store weights in fewer bits: GGUF's block formats on the host.

Visited by lab 14.
"""

__all__: list[str] = []

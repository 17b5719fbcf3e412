"""Papers reproduced with the library: their tables, published figures, importers and demonstrations.

Nothing imports this room; its commands and importers are found through entry points (pyproject.toml).
"""

__all__: list[str] = []

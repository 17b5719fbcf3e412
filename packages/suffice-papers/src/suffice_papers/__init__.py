"""Papers reproduced with the library: their tables, published figures, importers and demonstrations.

No other package imports this one; its commands and importers are entry points (pyproject.toml).
"""

__all__: list[str] = []

"""Gates: whether to retrieve at all, judged offline on questions answered both ways."""

__all__: list[str] = []

"""Display of results in a notebook: tables, data frames and charts; the report uses the same components."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.common.display.chart import Chart
    from suffice.common.display.table_html import Displayed, facts_table, html_table

__all__ = ["Chart", "Displayed", "facts_table", "html_table"]

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "chart": ("Chart",),
        "table_html": ("Displayed", "facts_table", "html_table"),
    },
)

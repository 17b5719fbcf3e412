"""Display of results in a notebook: tables, data frames and charts; the report uses the same components."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.common.display.chart import Chart as Chart
    from suffice.common.display.table_html import html_table as html_table
    from suffice.common.results import Displayed as Displayed
    from suffice.common.tables import facts_table as facts_table

__getattr__, __dir__, __all__ = lazy_face(__name__)

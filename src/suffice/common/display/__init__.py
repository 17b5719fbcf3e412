"""Display of results in a notebook: tables, data frames and charts; the report uses the same components."""

from suffice.common.display.chart import Chart
from suffice.common.display.tables import Displayed, facts_table, html_table

__all__ = ["Chart", "Displayed", "facts_table", "html_table"]

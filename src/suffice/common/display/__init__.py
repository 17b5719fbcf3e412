"""How values show themselves in a notebook: tables, data frames and charts; the report uses the same components."""

from suffice.display.chart import Chart
from suffice.display.tables import Displayed, facts_table, html_table

__all__ = ["Chart", "Displayed", "facts_table", "html_table"]

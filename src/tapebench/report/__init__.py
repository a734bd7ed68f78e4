"""What results say: tables, figures and a page. Reads files and plain values, imports no JAX.

`tables` and `figures` know nothing of results: they turn values into something to paste.
"""

from tapebench.report.page import COLUMNS, Curve, Page, Row, cells, render

__all__ = ["COLUMNS", "Curve", "Page", "Row", "cells", "render"]

"""Configuration of the documentation site: `sphinx-build -W notebooks site`."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import sketchselect  # noqa: E402

project = "sketchselect"
author = copyright = "The sketchselect developers"
version = release = sketchselect.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc", "generator"]
exclude_patterns = ["_build", "generator", "paper"]
suppress_warnings = ["myst.header"]  # Notebooks begin at a level of their own
default_role = "py:obj"

# The outputs in the notebooks are shown; `pytest --nbmake notebooks` runs them.
nb_execution_mode = "off"
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "furo"
html_title = f"sketchselect {version}"
html_static_path = ["generator/static"]
html_js_files = [("access.js", {"defer": "defer"})]
html_show_sourcelink = False

"""Sphinx configuration."""

import skcalib

project = "skcalib"
copyright = "2026, the skcalib developers"
release = version = skcalib.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_validation_checks = {"PR01", "PR02", "PR03", "PR10", "RT01", "SS03", "GL06", "GL07"}

html_theme = "pydata_sphinx_theme"
html_title = "skcalib"
html_show_sourcelink = False

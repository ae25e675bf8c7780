"""Sphinx configuration."""

import os
import re
import sys
from pathlib import Path

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx_gallery.sorting import ExplicitOrder

import skcalib

sys.path.insert(0, str(Path(__file__).parent))  # of the extensions beside this file

# The examples run while the site is built: offline, and on the sentences that ship with the
# package, so that every build shows the same figures.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("SKCALIB_DATA", None)

project = "skcalib"
copyright = "2026, the skcalib developers"
release = version = skcalib.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "class_names",
    "pictures",
    "on_site",
]
exclude_patterns = ["_build", "_templates", "generated/names.rst"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = ["generated/names.rst"]
autodoc_typehints = "none"  # the docstrings describe the types
templates_path = ["_templates"]
autodoc_default_options = {
    "members": True,
    # What scikit-learn's own base classes bring is in its documentation.
    "inherited-members": "BaseEstimator,TransformerMixin,ClassNamePrefixFeaturesOutMixin,"
    "VersionedState,object",
    "exclude-members": "set_output,get_metadata_routing",
}
# Every cross-reference must lead somewhere, but for those out of these pages: the site is built
# without a network.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|collections|os|pathlib|sklearn|skcalib\.encoders\.store)\..*")
]
numpydoc_show_class_members = False
numpydoc_validation_checks = {"PR01", "PR02", "PR03", "PR10", "RT01", "SS03", "GL06", "GL07"}

html_theme = "pydata_sphinx_theme"
html_title = f"skcalib {version}"
html_show_sourcelink = False
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options: dict = {"logo": {"text": f"skcalib {version}"}}
if published := os.environ.get("SKCALIB_DOCS_VERSION"):
    # `versions.py` writes the list beside the folders of the versions, so that pages of an old
    # version know of newer ones.
    html_theme_options |= {
        "logo": {"text": "skcalib"},
        "navbar_start": ["navbar-logo", "version-switcher"],
        "switcher": {"json_url": "../versions.json", "version_match": published},
        "check_switcher": False,
        "show_version_warning_banner": True,
    }
html_math_renderer = "mathml"
copybutton_exclude = ".linenos, .gp, .go"  # neither prompts nor output
# The front page has its links in the text.
html_sidebars = {"index": []}
toc_object_entries_show_parents = "hide"

# From the problem to the grid search, then what each part does, then the limits.
EXAMPLES = [
    "plot_why_cosine_fails.py",
    "plot_without_labels.py",
    "plot_raw_model.py",
    "plot_grid_search.py",
    "plot_small_samples.py",
    "plot_when_not_to_calibrate.py",
    "plot_similarity_scale.py",
    "plot_explained_cosine.py",
    "plot_smoothing.py",
    "plot_classifier.py",
    "plot_classes.py",
    "plot_own_embeddings.py",
    "plot_two_encoders.py",
    "plot_streaming.py",
    "plot_faiss_search.py",
    "plot_flow_density.py",
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "ignore_pattern": r"serve\.py",  # a program, shown on a page of its own
    "within_subsection_order": ExplicitOrder(EXAMPLES),
    "image_scrapers": ("matplotlib",),
    "thumbnail_size": (800, 560),  # twice what site.css gives them, for dense screens
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "write_computation_times": False,
    "min_reported_time": float("inf"),
    "download_all_examples": False,
    "parallel": 2,
    "show_signature": False,
    "doc_module": "skcalib",
    "backreferences_dir": "generated/backreferences",
    "reference_url": {"skcalib": None},
}


def inline_formula(writer, node):
    writer.body.append(tex2mathml(node.astext()))
    raise SkipNode


def displayed_formula(writer, node):
    writer.body.append(f"<div class='formula'>{tex2mathml(node.astext(), as_block=True)}</div>")
    raise SkipNode


def of_metadata_routing(app, what, name, obj, skip, options):
    """Leave out methods whose docstrings, and references, are scikit-learn's."""
    return True if re.fullmatch(r"set_\w+_request", name.rpartition(".")[2]) else None


def setup(app):
    app.connect("autodoc-skip-member", of_metadata_routing)
    # MathML is written when the site is built and needs neither a script nor a network to read.
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))

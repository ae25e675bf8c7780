"""List the versions of the published site for its switcher, and lead its root to the newest.

python docs/versions.py SITE URL

SITE is a folder with a folder for each version, and URL is where it is published.
"""

import json
import sys
from pathlib import Path

from packaging.version import Version


def write(site: Path, url: str) -> None:
    releases = [p.name for p in site.iterdir() if p.name[0].isdigit()]
    releases.sort(key=Version, reverse=True)
    names = releases + ["dev"] * (site / "dev").is_dir()
    entries = [{"version": name, "url": f"{url}{name}/"} for name in names]
    entries[0] |= {"name": f"{names[0]} (newest)", "preferred": True}
    (site / "versions.json").write_text(json.dumps(entries, indent=2), encoding="utf-8")
    newest = f'<meta http-equiv="refresh" content="0; url={names[0]}/">\n'
    (site / "index.html").write_text(newest, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])

"""Hatchling's hook: the package's links are made from ``[tool.agym]`` of ``pyproject.toml``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AddressesHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        project = tomllib.loads(Path(self.root, "pyproject.toml").read_text())
        addresses = project["tool"]["agym"]
        repository, documentation = addresses["repository"], addresses["documentation"]
        readme = Path(self.root, "README.md").read_text("utf-8")
        urls = {}
        if repository:
            urls |= {
                "Repository": repository,
                "Issues": f"{repository}/issues",
                "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
            }
            # PyPI shows the README where its relative links lead nowhere.
            readme = readme.replace("](docs/pictures/", f"]({repository}/raw/HEAD/docs/pictures/")
            readme = re.sub(r"\]\((?!https?:|#)", f"]({repository}/blob/HEAD/", readme)
        if documentation:
            urls["Documentation"] = documentation
        metadata["urls"] = urls
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}

"""Names of browsers for people."""

from __future__ import annotations

import re

# The first match counts: browsers name others too, Edge for example Chrome and Safari.
_BROWSERS = ((r"Edg(?:e|A|iOS)?/", "Edge"), (r"OPR/", "Opera"), (r"(?:Firefox|FxiOS)/", "Firefox"),
             (r"(?:Chrome|CriOS)/", "Chrome"), (r"Safari/", "Safari"))  # fmt: skip
_SYSTEMS = (
    (r"Android", "Android"),
    (r"iPhone|iPad", "iOS"),
    (r"Windows", "Windows"),
    (r"Mac OS X", "macOS"),
    (r"Linux", "Linux"),
)


def browser_name(user_agent: str) -> str:
    """Returns for example "Firefox on Linux" for a User-Agent header, its first word if it is no known browser's, or
    "unknown browser" for an empty one."""
    browser = next((name for pattern, name in _BROWSERS if re.search(pattern, user_agent)), "")
    system = next((name for pattern, name in _SYSTEMS if re.search(pattern, user_agent)), "")
    if not browser:
        return user_agent.split("/")[0].split(" ")[0][:40] or "unknown browser"
    return f"{browser} on {system}" if system else browser

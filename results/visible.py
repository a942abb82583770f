"""A stranger's text as it may be shown: signs that a terminal or a browser obeys are seen instead.

ESC begins what moves the cursor, sets titles and colours; U+202E and its like turn the direction of
what follows. A broker's log line, a record, or a file of a run may have them.
"""

from __future__ import annotations

import re
from typing import Final

# C0 but tab and the end of a line, DEL, C1; marks, embeddings, overrides and isolates of direction;
# the separators of lines and paragraphs; what is not seen at all; halves of a pair.
_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
    "\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The same, but for such signs: `\\x1b`, `\\u202e`. The end of a line of Windows is one."""
    return _OBEYED.sub(_name, text.replace("\r\n", "\n"))


def _name(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

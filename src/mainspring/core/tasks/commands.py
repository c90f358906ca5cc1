"""A command as one text: split into words as a shell would split it, and refused where a shell would do more.

No shell runs it. So `a | b > c`, `rm -f *.tmp` or `$(date)` would silently become arguments, and the run might even
succeed. Whatever is quoted or escaped, as one would for a shell, is meant as it is.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from mainspring.errors import InvalidInput

_OPERATORS = re.compile(r"\|\||\|&|\||&&|&>|&|;;|;|<<<|<<|<>|>>|>&|[<>()]|\n")
_EXPANSION = re.compile(r"\$(?:\(|\{|[A-Za-z_0-9@*#?$!-])")
_GLOB = re.compile(r"[*?]|\[[^\]\s]+\]")
_HOME = re.compile(r"~[A-Za-z0-9_.-]*(?=[/\s]|$)")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_CONTINUED = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|\\\n""")
"""An escaped line break does not count, except between quotes."""
_LONGEST_SHOWN = 100
_WORD_END = re.compile(r"[\s|&;<>()]")


def split_command(text: str, field: str = "command", shell: str = "sh -c") -> list[str]:
    """The words of a command. InvalidInput if it is empty, if a quote is open, or if it needs a shell: then the remedy
    is to put `shell` before it."""
    text = _CONTINUED.sub(lambda match: "" if match[0] == "\\\n" else match[0], text)
    if syntax := find_shell_syntax(text):
        raise InvalidInput(
            field, text, f"needs a shell for {syntax}, and no shell runs it", _remedy(text, syntax, shell)
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        problem = f"cannot be split into words: {str(error).lower()}"
        raise InvalidInput(field, text, problem, "close its quotes, or give its words one by one") from None
    if not words:
        raise InvalidInput(field, text, "is empty", "give a program and its arguments")
    return words


def find_shell_syntax(text: str) -> str:
    """The first part of a text that a shell would not pass on as a word, or as a part of one; empty if there is none.

    A glob in a URL does not count: no shell finds a file of such a name.
    """
    text = text.strip()
    if match := _ASSIGNMENT.match(text):
        return match[0]
    position, start, quote = 0, 0, ""
    while position < len(text):
        character = text[position]
        if character == "\\" and quote != "'":
            position += 2
            continue
        if character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        elif quote != "'":
            found = _expansion_at(text, position) or ("" if quote else _syntax_at(text, position, start))
            if found:
                return found
        position += 1
        if not quote and character.isspace():
            start = position
    return ""


def _expansion_at(text: str, position: int) -> str:
    """What a shell replaces even between double quotes."""
    if text[position] == "`":
        return "`"
    match = _EXPANSION.match(text, position)
    if match is None:
        return ""
    return "$(" if match[0] == "$(" else _word_from(text, position)


def _syntax_at(text: str, position: int, start: int) -> str:
    """What has a meaning where nothing is quoted, in a word that starts at `start`."""
    if match := _OPERATORS.match(text, position):
        return "a line break" if match[0] == "\n" else match[0]
    if position == start and text[position] == "#":
        return "#"
    if position == start and (match := _HOME.match(text, position)):
        return match[0]
    if _GLOB.match(text, position) and not _URL.match(text, start):
        return _word_from(text, start)
    return ""


def _word_from(text: str, start: int) -> str:
    end = _WORD_END.search(text, start + 1)
    return text[start : end.start() if end else len(text)].rstrip("'\"")


def _remedy(text: str, syntax: str, shell: str) -> str:
    text = text.strip()
    if _ASSIGNMENT.fullmatch(syntax):
        return f"write env {text if len(text) <= _LONGEST_SHOWN else syntax + '…'}"
    script = shlex.quote(text) if len(text) <= _LONGEST_SHOWN else "'…'"
    return f"put it in single quotes if it is meant as it is, or let a shell run it: {shell} {script}"


def show_command(spec: object) -> str:
    """The arguments of a command as one would type it, or where those of a call go."""
    if isinstance(spec, dict) and "url" in spec:
        sends = "body" in spec or "json" in spec
        return f"{spec.get('method') or ('POST' if sends else 'GET')} {spec['url']}"
    argv = spec.get("argv") if isinstance(spec, dict) else None
    if isinstance(argv, str):
        return f"$ {argv}"
    words = [str(word) for word in argv] if isinstance(argv, list) else [msgspec.json.encode(spec).decode()]
    return f"$ {shlex.join(words)}"

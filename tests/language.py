"""``python tests/language.py``: where the text of this repository is not plain English, with what to write instead.

python tests/language.py                    # a table by folder
python tests/language.py --list             # every place
python tests/language.py --root ../other    # another checkout

The rules are those of CONTRIBUTING.md, "Words". tests/test_language.py enforces them.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from house import BESIDE_THE_LAYERS, LAYERS, ROOT, Module

#: Programs and their parts: they report and receive, and do not say, tell, hear or know.
_PROGRAM = (
    r"(?:nodes?|brokers?|servers?|clients?|leaders?|followers?|voters?|candidates?|controllers?|coordinators?|clusters?"
    r"|consumers?|producers?|members?|replicas?|witness(?:es)?|peers?|heartbeats?|images?|metadata)"
)
#: A phrase, as a regular expression that is found regardless of case -> what to write instead.
WORDS = {
    r"whoever": "the caller, the client that",
    r"any more(?! than)": "no longer",
    r"anew": "again",
    r"for ever": "permanently, indefinitely",
    r"(?:goes|go|went) on": "continues",
    r"(?:goes|go|went) away": "is removed, disappears, leaves",
    r"(?:comes|come|came) back": "returns, restarts",
    r"by itself": "automatically",
    r"there (?:is|are) none": "none exist, there is no X",
    r"sign(?:s|ed|ing)? in": "authenticate",
    r"(?:of all of them together|so (?:many|much) of all)": "a limit shared by all",
    r"(?:is|are) no longer any": "no longer exist",
    r"nobody": "no client, no node, no one",
    r"somebody": "a client, a user",
    r"everybody": "every client, every user",
    r"senseless": "invalid",
    r"meanwhile": "while …, in the meantime",
    r"blows?": "fault",
    r"told": "is notified, receives, has to; distinguished from",
    r"(?<!can )(?<!can it )(?<!cannot )tells?(?! (?:you|the user|users)\b)": "reports, notifies, shows, distinguishes",
    r"(?:hears?|heard)(?! from\b| both sides\b|=)": "receives, applies; has sent a message",
    rf"{_PROGRAM} (?:says?|said)": "reports, returns, declares",
    r"(?<!you )(?<!user )(?<!users )(?:knows?|knew)": "has, contains, can tell, has learned",
    r"(?:is|are|was|were) to be": "must be, will be, to do",
    r"stands?(?! for\b| in for\b| by\b|-)": "is, is stored, is written",
    r"lives": "is, is stored, runs, lasts",
    r"(?:that|which|what|who|it|one|all) (?:is|are|was|were) (?:still |already |not )?there": "exists, is present",
    r"(?:is|are|was|were) (?:still |already |not )?there(?=[.,;:)]|$)": "exists, is present",
    r"(?:commands?|options?|settings?|servers?|nodes?|leaders?|brokers?|methods?) takes?\b"
    r"(?! (?:over|it over|up|part|no part|place|effect|care|about|longer|\d|a (?:snapshot|while|second|lock)))": (
        "accepts"
    ),
    r"(?:strikes?|struck)": "injects a fault, removes",
    r"(?:begins?|began|begun)(?!: |, end)": "starts",
    r"who (?:asks?|asked|calls?|called|votes?|leads?|led|waits?|owns?|serves?|is (?:there|to|in|first))": (
        "the caller, the node that, the member that"
    ),
    r"meant": "intended, meaningful",
    r"wish(?:es|ed)?": "request",
    r"(?<=[,;] )else": "otherwise",
    r"as well(?! as\b)": "also",
    r"(?<!there )(?:is|are|was|were) no "
    r"(?!longer|more|older|newer|later|earlier|larger|smaller|better|need|way|match|one)\w+": "is not a",
    r"once more": "again",
    r"in vain": "without success",
}
#: The first word of a docstring that is a clause without a main verb.
CLAUSE = re.compile(
    r"(?:What|Who|Whom|Whose|Whoever|Whether|Where|Whereas|When|How|Which|That|If|Of|As far as)\b(?!.*\?$)"
)
#: Code, addresses and the expressions of f-strings are no prose.
_CODE = re.compile(r"``[^`]*``|`[^`]*`|https?://\S+|\{(?:[^{}]|\{[^{}]*\})*\}|-----BEGIN")
#: The names of arguments and attributes before their description.
_ARGUMENT = re.compile(r"^\s*[a-z_]+(?:, [a-z_]+)*: ")
#: Files whose text names the phrases, and the history of releases.
_LEFT_OUT = ("tests/language.py", "tests/test_language.py", "CHANGELOG.md")


@dataclass(frozen=True)
class Hit:
    """One place.

    Arguments:
        path: relative to the checkout; line: from 1.
        rule: the phrase, or "clause".
        advice: what to write instead.
        text: the text around it.
    """

    path: str
    line: int
    rule: str
    advice: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text.strip()!r}: instead of {self.rule!r} write: {self.advice}"


_PHRASES = [(re.compile(rf"\b(?:{phrase})(?!\w)", re.I), advice) for phrase, advice in WORDS.items()]

#: Any of them: most text has none, and is looked at once.
_ANY = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in _PHRASES), re.I)


def phrases(path: str, line: int, text: str) -> Iterator[Hit]:
    """The phrases of the list in a piece of prose that begins at a line."""
    if not _ANY.search(text):
        return
    for number, each in enumerate(text.split("\n"), start=line):
        prose = _CODE.sub("", _ARGUMENT.sub("", each))
        for pattern, advice in _PHRASES:
            for found in pattern.finditer(prose):
                yield Hit(path, number, found[0], advice, each)


def of_python(path: str, text: str) -> Iterator[Hit]:
    """What a Python file's docstrings, comments and messages have."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is None:
                continue
            line = node.body[0].lineno
            first = docstring.split("\n")[0]
            if CLAUSE.match(first):
                yield Hit(path, line, "clause", 'a sentence ("Returns …") or a noun phrase', first)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield from phrases(path, token.start[0], token.string)


def of_markdown(path: str, text: str) -> Iterator[Hit]:
    """What a page has outside of its code blocks."""
    prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    yield from phrases(path, 1, prose)


def texts(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """The path and text of every file that people write: Python in all folders, and the documents."""
    for folder in (*LAYERS, *BESIDE_THE_LAYERS):
        for file in sorted((root / folder).rglob("*.py")):
            module = Module(str(file.relative_to(root)), "", file.read_text())
            if not module.is_generated:
                yield module.path, module.text
    for file in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        yield str(file.relative_to(root)), file.read_text()


def hits(root: Path = ROOT) -> Iterator[Hit]:
    """All places of a checkout."""
    for path, text in texts(root):
        if path not in _LEFT_OUT:
            yield from of_python(path, text) if path.endswith(".py") else of_markdown(path, text)


def counts(found: Iterable[Hit]) -> tuple[Counter[str], Counter[str]]:
    """Clauses and phrases by top-level folder."""
    clauses: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for each in found:
        folder = each.path.split("/")[0] if "/" in each.path else "(root)"
        (clauses if each.rule == "clause" else words)[folder] += 1
    return clauses, words


def main() -> None:
    """Prints places, or counts by folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--list", action="store_true", help="every place, not the counts")
    parser.add_argument("folders", nargs="*", help="only these, for example server/kafka")
    options = parser.parse_args()
    found = [each for each in hits(options.root) if not options.folders or each.path.startswith(tuple(options.folders))]
    if options.list:
        print("\n".join(map(str, found)))
        return
    clauses, words = counts(found)
    print(f"{'folder':12} {'clauses':>8} {'phrases':>8}")
    for folder in sorted({*clauses, *words}):
        print(f"{folder:12} {clauses[folder]:8,} {words[folder]:8,}")
    print(f"{'all':12} {clauses.total():8,} {words.total():8,}")


if __name__ == "__main__":
    main()

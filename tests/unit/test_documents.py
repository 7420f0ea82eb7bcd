"""README and docs/ say what the code says: what is generated is up to date, and what they name is there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import click
import pytest

from documents import by_line, command_line, costs, options, transitions
from documents.links import rewritten
from documents.network import loaded
from documents.places import BENCHMARKS, COMMAND_LINE, COMPATIBILITY, DOCS, OPTIONS, PROTOCOL, README, ROOT
from jvm_shim.sparks import PINNED
from spark_ckpt import __version__
from spark_ckpt.cli.main import VERBS, cli
from spark_ckpt.conf.table import OPTIONS as TABLE
from spark_ckpt.protocol.reasons import AbortReason

PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
NO_OPTIONS = {"spark.ckpt.barrier", "spark.ckpt.drained"}
"""A local property of Spark's, and what a drain notes in an epoch's offsets."""
SPARKS = ("StreamingQuery",)
"""Classes that are not ours."""
OPEN_ENDED = ("submit",)
"""Verbs that pass on options which are not theirs."""

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NAMED = re.compile(r"`((?:spark_ckpt|jvm_shim|tests|simulation|campaign|benchmarks|documents|testbed|examples|conf)/[\w./-]*)`")
_COMMAND = re.compile(r"(?:`|^(?: {4}|)(?:\$ )?|\| )spark-ckpt ([a-z]+)([^`\n]*)", re.MULTILINE)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_page_of_options_is_the_table() -> None:
    assert OPTIONS.read_text(encoding="utf-8") == options.render(), "docs/options.md is stale: run `python -m documents`"


def test_the_page_of_commands_is_what_help_says() -> None:
    assert COMMAND_LINE.read_text(encoding="utf-8") == command_line.render(), "docs/command-line.md is stale: run `python -m documents`"


def test_what_it_costs_is_what_the_benchmark_has_measured() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == costs.renewed(text, BENCHMARKS.read_text(encoding="utf-8")), "README.md is stale: run `python -m documents`"


def test_the_diagrams_of_the_protocol_are_its_tables() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    assert text == transitions.renewed(text), "docs/protocol.md is stale: run `python -m documents`"


def test_the_page_of_sparks_lines_is_that_of_the_results_and_of_the_pins() -> None:
    text = COMPATIBILITY.read_text(encoding="utf-8")
    assert text == by_line.renewed(text, by_line.read()), "docs/compatibility.md is stale: run `python -m documents`"
    assert re.findall(r"^\| (4\.\d+) \| [^|]* \| (\S+) \|$", text, re.MULTILINE) == [(line, pin) for line, (pin, _) in PINNED.items()]


def test_a_table_of_what_ran_on_which_spark() -> None:
    what, (test, *_) = next(iter(by_line.SHOWN.items()))

    def result(spark: str, outcome: str, day: int) -> dict[str, object]:
        return {"test": test, "outcome": outcome, "date": f"2026-01-0{day}T", "versions": {"pyspark": spark, "python": "3.11.7"}}

    rows = by_line.table([result("4.10.0", "failed", 1), result("4.0.5", "failed", 2), result("4.0.5", "passed", 3)]).splitlines()
    assert rows[0] == "| | Spark 4.0.5 | Spark 4.10.0 |"
    assert rows[2] == f"| {what} | ✓ | **fails** |"
    assert rows[3].endswith("| · | · |")
    assert rows[-1] == "From 2026-01-01 to 2026-01-03, Python 3.11.7. ·: did not run."


def test_the_tests_of_every_line_are_there() -> None:
    for name in (name for names in by_line.SHOWN.values() for name in names):
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert function.partition("[")[0] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_a_diagram_has_each_change_of_phase_once() -> None:
    for stage in transitions.STAGES:
        lines = transitions.diagram(stage).splitlines()[1:-1]
        shown: list[tuple[str, str, str]] = []
        for line in lines:
            if "->" in line:
                phases, to = line.split(" -> ")
            else:
                shown += [(phase, event, to) for phase in phases.split(", ") for event in line.strip(" ,").split(", ")]
        changes = [(phase.name, kind, row) for (phase, kind), row in stage.TABLE.items() if row.to]
        assert len(shown) == len(set(shown)) == len(changes)
        assert {(phase, frozenset(to.split(", "))) for phase, _, to in shown} == {
            (phase, frozenset(p.name for p in row.to)) for phase, _, row in changes
        }


def test_costs_are_those_of_the_short_form() -> None:
    page = """
## The short form

### Aggregation
Some words.

| system | partitions | rows | epoch ms | requests |
|---|---:|---:|---:|---:|
| stock | 20 | 1 | 1,254 (1,170 - 1,694) |  |
| floor | 20 | 1 | 9 (9 - 9) |  |
| ours | 20 | 1 | 695 (617 - 752) | 4.24 |
| ours | 200 | 1 | 1,634 (1,508 - 1,748) | 1,221.7 |

### Another
| system | partitions | epoch ms | requests |

## The full form
### Aggregation
| system | partitions | epoch ms | requests |
|---|---:|---:|---:|
| stock | 20 | 1 (1 - 1) | 1.0 |
"""
    assert costs.table(page).splitlines()[2:4] == ["| stock | 1.3 s |  |  |  |", "| ours | 0.7 s | 1.6 s | 4.2 | 1,222 |"]
    with pytest.raises(ValueError, match="has no table"):
        costs.table(page.replace("### Aggregation", "### Something", 1))
    with pytest.raises(ValueError, match="has no place"):
        costs.renewed("# README", page)


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@every_page
def test_every_file_that_is_named_is_there(page: Path) -> None:
    assert [path for path in _NAMED.findall(page.read_text(encoding="utf-8")) if not (ROOT / path).exists()] == []


@every_page
def test_every_module_that_is_named_is_there(page: Path) -> None:
    folders = ("spark_ckpt", "simulation", "campaign", "benchmarks", "documents", "tests")
    there = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", page.read_text(encoding="utf-8"))) - there == set()


@functools.cache
def members() -> dict[str, set[str]]:
    """By class, of the package and the simulation: what it defines in its body, and what its methods give `self`."""
    found: dict[str, set[str]] = {}
    for path in [*(ROOT / "spark_ckpt").rglob("*.py"), *(ROOT / "simulation").glob("*.py")]:
        for cls in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(cls, ast.ClassDef):
                own = found.setdefault(cls.name, set())
                own |= {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
                own |= {node.id for node in ast.walk(cls) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
                own |= {node.attr for node in ast.walk(cls) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return found


@every_page
def test_every_member_of_a_class_that_is_named_is_there(page: Path) -> None:
    said = re.findall(r"`([A-Z]\w+)\.(?!md\b)(\w+)(?:\(.*?\))?`", page.read_text(encoding="utf-8"))
    assert [f"{cls}.{name}" for cls, name in said if cls not in SPARKS and name not in members().get(cls, ())] == []


@every_page
def test_every_option_that_is_named_is_one(page: Path) -> None:
    keys = {option.key for option in TABLE} | NO_OPTIONS
    parents = {key.rsplit(".", 1)[0] for key in keys}
    mentioned = {key.rstrip(".") for key in re.findall(r"(?<!apache\.)spark\.ckpt\.(?:\w+\.?)+", page.read_text(encoding="utf-8"))}
    assert mentioned - keys - parents == set()


@every_page
def test_every_command_that_is_shown_is_one(page: Path) -> None:
    with click.Context(cli) as top:
        for verb, rest in _COMMAND.findall(page.read_text(encoding="utf-8")):
            command = cli.get_command(top, verb)
            assert command is not None, f"spark-ckpt {verb}"
            if verb not in OPEN_ENDED:
                known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
                assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - known == set(), f"spark-ckpt {verb}{rest}"


@every_page
def test_every_list_is_one_on_the_site_too(page: Path) -> None:
    """GitHub takes a dash behind a line of text for the begin of a list; the site needs an empty line between them."""
    blocks = re.split(r"\n\s*\n", _FENCE.sub("\n\n", page.read_text(encoding="utf-8")))
    item = re.compile(r"(?:- |\d+\. )")
    lists = [block for block in blocks if not item.match(block.strip()) and not block.strip().startswith("#")]
    assert [line for block in lists for line in block.splitlines() if item.match(line)] == []


def test_every_verb_is_explained_and_every_reason_has_its_way_out() -> None:
    assert set(re.findall(r"^## (\S+)$", COMMAND_LINE.read_text(encoding="utf-8"), re.MULTILINE)) == set(VERBS)
    operations = (DOCS / "operations.md").read_text(encoding="utf-8")
    rows = operations.partition("## Checkpoints fail")[2]
    told = {reason for row in re.findall(r"^\| ([A-Z_, ]+) \|", rows, re.MULTILINE) for reason in row.split(", ")}
    assert told == {reason.value for reason in AbortReason}


def test_this_version_is_among_the_changes() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d+\.\d+\.\d+)", changes, re.MULTILINE)[0] == __version__


def test_every_page_is_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [named(page) for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in site] == []


@pytest.mark.parametrize(
    ("page", "link", "on_site", "copied"),
    [
        ("index.md", "[a](docs/restore.md#savepoints)", "[a](restore.md#savepoints)", []),
        ("index.md", "![a](docs/images/x.png)", "![a](images/x.png)", []),
        ("index.md", "[a](LICENSE)", "[a](repository/LICENSE)", ["LICENSE"]),
        ("contributing.md", "[a](docs/protocol.md)", "[a](protocol.md)", []),
        ("getting-started.md", "[a](../README.md#try-it)", "[a](index.md#try-it)", []),
        (
            "getting-started.md",
            "[a](options.md) [b](#here) [c](https://x.org/y.md)",
            "[a](options.md) [b](#here) [c](https://x.org/y.md)",
            [],
        ),
        ("rfcs/1.md", "[a](../protocol.md)", "[a](../protocol.md)", []),
        ("rfcs/1.md", "[a](../../conf/x.template)", "[a](../repository/conf/x.template)", ["conf/x.template"]),
        ("benchmarks.md", "all in [results](../benchmarks/results).", "all in results.", []),
    ],
)
def test_links_on_the_site(page: str, link: str, on_site: str, copied: list[str]) -> None:
    assert rewritten(link, page, lambda path: path == "benchmarks/results") == (on_site, copied)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="https://x.org/a.js"></script>', True),
        ("<img alt=a src=//x.org/a.png>", True),
        ('<link rel="stylesheet" href="https://fonts.x.org/css?family=Y">', True),
        ('<link rel="preconnect" href="https://fonts.x.org" crossorigin>', True),
        ("@import url(https://x.org/a.css);", True),
        ("a { background: url('//x.org/a.png') }", True),
        ('<pre class="mermaid"><code>', True),
        ('<script src="assets/a.js"></script><link rel="stylesheet" href="a.css"><img src=images/x.png>', False),
        ('<a href="https://x.org/">x</a> <link rel="canonical" href="https://x.org/y.html">', False),
        ("a { background: url(data:image/svg+xml;base64,AA//AA) }", False),
    ],
)
def test_what_a_page_would_load_from_the_network_is_found(page: str, found: bool) -> None:
    assert bool(loaded(page)) is found

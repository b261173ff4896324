"""``modelcc cache``: where compiled models are kept, and how much that is."""

from __future__ import annotations

import click
from rich.table import Table

from modelcc.cache.maintenance import CacheUsage, cache_usage, clear_cache, trim_cache
from modelcc.cli.console import note, output_console, print_json, right
from modelcc.cli.verbosity import verbosity_options
from modelcc.environment import CACHE, Environment
from modelcc.ir.errors import ModelError
from modelcc.report.formats import byte_text
from modelcc.sizes import bytes_of

HELP = """Show where compiled models are kept and how large that is. Everything there can be
made again, so that nothing is lost by trimming it.

\b
  modelcc cache
  modelcc cache --trim 500MB       the least used go first
  modelcc cache --clear
"""

_KINDS = ("artifacts", "objects", "digests", "temporaries")


@click.command("cache", help=HELP)
@click.option("--trim", metavar="SIZE", help="Remove the least used until SIZE is left.")
@click.option("--clear", is_flag=True, help="Remove everything.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@verbosity_options
@click.pass_obj
def cache(environment: Environment, trim: str | None, clear: bool, as_json: bool) -> None:
    """See HELP."""
    folder = environment.cache
    if trim is not None and clear:
        raise ModelError("--trim and --clear exclude each other", (), "give one of them")
    limit = None if trim is None else bytes_of(trim)
    if folder is None:
        raise ModelError("there is no cache", (), f"{CACHE} is empty; unset it, or name a folder")
    removed = clear_cache(folder) if clear else CacheUsage(folder)
    if limit is not None:
        removed = trim_cache(folder, limit)
    usage = cache_usage(folder)
    if as_json:
        print_json({**_figures(usage), "removed": _figures(removed)})
        return
    output_console().print(str(folder), soft_wrap=True, markup=False)
    output_console().print(_table(usage))
    if clear or trim is not None:
        note(f"removed {removed.files} files, {byte_text(removed.bytes)}")


def _figures(usage: CacheUsage) -> dict[str, object]:
    kinds = {kind: getattr(usage, kind) for kind in _KINDS}
    parts = {kind: {"files": s.files, "bytes": s.bytes} for kind, s in kinds.items()}
    return {"folder": str(usage.folder), "files": usage.files, "bytes": usage.bytes, **parts}


def _table(usage: CacheUsage) -> Table:
    table = Table("kind", *right("files", "size"))
    for kind in _KINDS:
        share = getattr(usage, kind)
        table.add_row(kind, str(share.files), byte_text(share.bytes))
    table.add_row("in all", str(usage.files), byte_text(usage.bytes), style="bold")
    return table

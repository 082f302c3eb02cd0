"""``refcompiler cache``: what is kept on disk, and away with it."""

from __future__ import annotations

import sys
import time
from collections import defaultdict

import click

from refcompiler.cache import folder
from refcompiler.cache.store import Store


@click.group("cache", invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """Show or clear what compilations keep on disk.

    It lies in REFCOMPILER_CACHE_DIR, or in the user's folder for caches.
    """
    if context.invoked_subcommand is None:
        context.invoke(show)


@cache.command()
@click.option("--entries", is_flag=True, help="A line for each entry: kind, key, bytes, last use.")
def show(entries: bool) -> None:
    """Where the cache is, how many entries of each kind it has, and their bytes."""
    kept = _opened()
    found = kept.entries()
    click.echo(f"{kept.root}: {len(found)} entries, {_bytes(sum(e.bytes for e in found))}")
    kinds: dict[str, list[int]] = defaultdict(list)
    for entry in found:
        kinds[entry.kind].append(entry.bytes)
        if entries:
            used = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.used))
            click.echo(f"{entry.kind:8} {entry.key} {entry.bytes:9} {used}")
    for kind, sizes in sorted(kinds.items()):
        click.echo(f"{kind:8} {len(sizes):6} entries, {_bytes(sum(sizes))}")


@cache.command()
def clear() -> None:
    """Remove all entries; running processes make again what they miss."""
    kept = _opened()
    click.echo(f"{kept.root}: {kept.clear()} entries removed")


def _opened() -> Store:
    try:
        return Store(folder.private(folder.base() / "compiled"), 0)
    except folder.Refused as refused:
        click.echo(f"refcompiler cache: {refused}", err=True)
        sys.exit(2)


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} bytes"

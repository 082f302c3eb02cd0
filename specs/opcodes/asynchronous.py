"""Rows of coroutines and asynchronous generators."""

from __future__ import annotations

from specs.opcodes.row import (
    COROUTINE,
    ONLY_311,
    Chapter,
)

ROWS = Chapter()
handled = ROWS.handled

# ---- asynchronous code -------------------------------------------------------------------------

_SETTING = """
import asyncio
class C:
    async def __aenter__(self): return 1
    async def __aexit__(self, *args): return False
async def numbers():
    yield 1
async def run():
    async with C() as x:
        return [y async for y in numbers()], await asyncio.sleep(0), [y async for y in numbers()], x
async def loop():
    total = 0
    async for y in numbers():
        total += y
    return total
def main():
    return asyncio.run(run()), asyncio.run(loop())
"""
handled("GET_AWAITABLE", COROUTINE, "a -- aw", "The iterator that awaiting a drives.", _SETTING)
handled("GET_AITER", COROUTINE, "a -- ait", "ait = a.__aiter__()", _SETTING)
handled("GET_ANEXT", COROUTINE, "ait -- ait aw", "The awaitable of the next item.", _SETTING)
handled(
    "END_ASYNC_FOR", COROUTINE, "aw error --", "Leave the loop at StopAsyncIteration.", _SETTING
)
handled("BEFORE_ASYNC_WITH", COROUTINE, "m -- exit aw", "Look up __aexit__ and call __aenter__.",
        _SETTING)  # fmt: skip
handled("ASYNC_GEN_WRAP", COROUTINE, "v -- w", "Mark v as yielded by an asynchronous generator.",
        _SETTING, ONLY_311)  # fmt: skip

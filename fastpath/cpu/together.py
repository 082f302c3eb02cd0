"""One launch of several kernels, whose work torch's threads share as if it were one kernel's.

The kernels wait for nothing of each other. Each thread takes an equal part of all their work: some
of them whole, of the first and the last a range of units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastpath.cpu.launcher import (
    HEAD,
    WORK_PER_THREAD,
    callable_of,
    is_callable_of,
    shared,
    taken,
    words_of,
)

_FIXED, _EACH = 5, 5  # words of a record in front, and for each kernel

_IR = (
    HEAD
    + """
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; a record holds: number of arguments, kernels, words that these are given in all, work of all, most
; threads; for each kernel its address, units, work, the work before it, and the first of its words;
; then all words as they are without the arguments, and for each argument which word it is

define internal i64 @units_until(i64 %end, i64 %start, i64 %units, i64 %work) {{
  %some = sub i64 %end, %start
  %least = call i64 @llvm.smax.i64(i64 %some, i64 0)
  %done = call i64 @llvm.smin.i64(i64 %least, i64 %work)
  %scaled = mul i64 %done, %units
  %found = sdiv i64 %scaled, %work
  ret i64 %found
}}

define internal void @part(ptr %shared, i64 %low, i64 %high) {{
entry:
  %record = load ptr, ptr %shared
  %words = getelementptr i64, ptr %shared, i64 1
  %count.at = getelementptr i64, ptr %record, i64 1
  %count = load i64, ptr %count.at
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %i.place = mul i64 %i, 5
  %i.words = add i64 %i.place, 5
  %own = getelementptr i64, ptr %record, i64 %i.words
  %kernel = load ptr, ptr %own
  %units.at = getelementptr i64, ptr %own, i64 1
  %units = load i64, ptr %units.at
  %work.at = getelementptr i64, ptr %own, i64 2
  %work = load i64, ptr %work.at
  %start.at = getelementptr i64, ptr %own, i64 3
  %start = load i64, ptr %start.at
  %begin = call i64 @units_until(i64 %low, i64 %start, i64 %units, i64 %work)
  %end = call i64 @units_until(i64 %high, i64 %start, i64 %units, i64 %work)
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %run, label %next
run:
  %first.at = getelementptr i64, ptr %own, i64 4
  %first = load i64, ptr %first.at
  %addresses = getelementptr i64, ptr %words, i64 %first
  call void %kernel(ptr %addresses, i64 %begin, i64 %end)
  br label %next
next:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %each, label %done
done:
  ret void
}}

define internal void @region(ptr %shared) {{
  %record = load ptr, ptr %shared
  %work.at = getelementptr i64, ptr %record, i64 3
  %work = load i64, ptr %work.at
  %thread.32 = {thread}
  %threads.32 = {threads}
  %thread = sext i32 %thread.32 to i64
  %threads = sext i32 %threads.32 to i64
  %next = add i64 %thread, 1
  %a = mul i64 %work, %thread
  %b = mul i64 %work, %next
  %low = sdiv i64 %a, %threads
  %high = sdiv i64 %b, %threads
  call void @part(ptr %shared, i64 %low, i64 %high)
  ret void
}}

define ptr @launch(ptr %self, ptr %args, i64 %given) {{
entry:
  %self.value = call i64 @PyLong_AsLongLong(ptr %self)
  %record = inttoptr i64 %self.value to ptr
  %expected = load i64, ptr %record
  %count.at = getelementptr i64, ptr %record, i64 1
  %count = load i64, ptr %count.at
  %size.at = getelementptr i64, ptr %record, i64 2
  %size = load i64, ptr %size.at
  %work.at = getelementptr i64, ptr %record, i64 3
  %work = load i64, ptr %work.at
  %most.at = getelementptr i64, ptr %record, i64 4
  %most = load i64, ptr %most.at
  %fits = icmp eq i64 %expected, %given
  br i1 %fits, label %unpack, label %refuse
unpack:
  %each = mul i64 %count, 5
  %front = add i64 %each, 5
  %usual = getelementptr i64, ptr %record, i64 %front
  %places = getelementptr i64, ptr %usual, i64 %size
  %all = add i64 %size, 1
  %base = alloca i64, i64 %all
  store ptr %record, ptr %base
  %words = getelementptr i64, ptr %base, i64 1
  %bytes = mul i64 %size, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %usual, i64 %bytes, i1 false)
  br label %take
"""
    + taken(
        """\
  %place.at = getelementptr i64, ptr %places, i64 %i
  %place = load i64, ptr %place.at
  %slot = getelementptr i64, ptr %words, i64 %place
"""
    )
    + "ready:\n"
    + shared("call void @part(ptr %base, i64 0, i64 %work)")
)


def bind_together(kernels: Sequence[tuple[int, ...]]) -> Callable[..., None]:
    """A callable of the addresses of all ``kernels``, of which each is what
    :func:`fastpath.cpu.launcher.record_of` says, and its work: all that it is bound to is known."""
    own: list[int] = []
    words: list[int] = []
    places: list[int] = []
    before = 0
    for kernel, units, _, addresses, skip, *numbers, work in kernels:
        assert not skip
        work = max(work, units)
        own += [kernel, units, work, before, len(words)]
        places += range(len(words), len(words) + addresses)
        words += [0] * addresses + numbers
        before += work
    most = max(1, before // WORK_PER_THREAD)
    record = [len(places), len(kernels), len(words), before, most, *own, *words, *places]
    return callable_of(_IR, record)


def is_together(value: Any) -> bool:
    """Whether ``value`` is a callable of :func:`bind_together`."""
    return is_callable_of(_IR, value)


def parts_of(run: Callable[..., None]) -> list[tuple[int, ...]]:
    """What :func:`bind_together` has made a callable of."""
    words = words_of(run)
    arguments, count, size = words[:3]
    front = _FIXED + _EACH * count
    usual, places = words[front : front + size], words[front + size :]
    assert len(places) == arguments
    rows = [words[at : at + _EACH] for at in range(_FIXED, front, _EACH)]
    ends = [*(row[-1] for row in rows[1:]), size]
    given = set(places)
    found = []
    for (kernel, units, work, _, first), end in zip(rows, ends, strict=True):
        numbers = [usual[n] for n in range(first, end) if n not in given]
        addresses = end - first - len(numbers)
        found.append((kernel, units, 1, addresses, 0, *numbers, work))
    return found

"""Tracebacks that show the user's frames instead of the interpreter's.

A traceback entry needs a frame object, which only the running of code makes. So for each user
frame a code object with the user's file, name and line is run that does nothing but raise.
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType, TracebackType
from typing import Any


class Trace:
    """The user frames that an exception passed, innermost first; kept on the exception."""

    def __init__(self) -> None:
        self.places: list[tuple[CodeType, int]] = []
        self.native: TracebackType | None = None

    @staticmethod
    def of(error: BaseException) -> Trace:
        trace = error.__dict__.get("__refcompiler_trace__") if hasattr(error, "__dict__") else None
        if trace is None:
            trace = Trace()
            trace.native = _without_interpreter(error.__traceback__)
            try:
                error.__dict__["__refcompiler_trace__"] = trace
            except AttributeError:
                pass
        return trace

    def passed(self, frame: Any) -> None:
        place = (frame.code, frame.line)
        if not self.places or self.places[-1] != place:
            self.places.append(place)

    def finish(self, error: BaseException) -> BaseException:
        """``error`` with a traceback of user frames, ready to be raised."""
        traceback = self.native
        for code, line in self.places:
            frame_entry = _entry(code, line)
            traceback = TracebackType(
                traceback, frame_entry.tb_frame, frame_entry.tb_lasti, frame_entry.tb_lineno
            )
        error.__dict__.pop("__refcompiler_trace__", None)
        return error.with_traceback(traceback)


def _without_interpreter(traceback: TracebackType | None) -> TracebackType | None:
    """Drop the leading entries that lie in this package: what is left was native code's."""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        if not module.startswith(("refcompiler.", "torch.overrides")):
            return traceback
        traceback = traceback.tb_next
    return None


@lru_cache(maxsize=256)
def _raiser(filename: str, name: str, qualname: str, line: int) -> CodeType:
    code = compile("\n" * (line - 1) + "raise _error", filename, "exec")
    return code.replace(co_name=name, co_qualname=qualname)


def _entry(code: CodeType, line: int) -> TracebackType:
    try:
        exec(
            _raiser(code.co_filename, code.co_name, code.co_qualname, max(line, 1)),
            {"_error": ZeroDivisionError()},
        )
    except ZeroDivisionError as raised:
        traceback = raised.__traceback__
        assert traceback is not None and traceback.tb_next is not None
        return traceback.tb_next
    raise AssertionError("unreachable")


def entry_frames(error: BaseException) -> list[tuple[str, int, str]]:
    """(file, line, function) of each entry of the exception's traceback, outermost first."""
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return found

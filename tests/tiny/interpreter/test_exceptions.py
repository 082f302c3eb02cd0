"""Raising, catching, chaining and cleaning up, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## uncaught
def deeper(x):
    return [1, 2][x]
def main():
    return deeper(
        7)
## try_else_finally
def main():
    log = []
    for x in (0, 1, 'a'):
        try:
            log.append('try')
            y = 4 / x
        except ZeroDivisionError:
            log.append('zero')
        except (TypeError, ValueError) as e:
            log.append(str(e))
        else:
            log.append(y)
        finally:
            log.append('finally')
    return log
## return_in_finally
def f(x):
    try:
        if x == 0:
            raise KeyError(x)
        return 'try'
    finally:
        if x < 2:
            return 'finally'
def main():
    return [f(x) for x in range(3)]
## break_and_continue_in_finally
def main():
    log = []
    for x in range(5):
        try:
            if x == 1:
                continue
            if x == 3:
                raise ValueError(x)
            log.append(x)
        except ValueError:
            break
        finally:
            log.append(-x)
            if x == 2:
                continue
    else:
        log.append('else')
    return log
## nested_tries
def f(which, log):
    try:
        try:
            try:
                raise which('inner')
            except ValueError:
                log.append('value')
                raise KeyError('from value')
            finally:
                log.append('f1')
        except KeyError as e:
            log.append(repr(e))
            raise
        else:
            log.append('never')
        finally:
            log.append('f2')
    except Exception as e:
        log.append(e)
    return 'end'
def main():
    log = []
    return [f(which, log) for which in (ValueError, KeyError, OSError)], log
## name_is_unbound_after_the_handler
def main():
    try:
        raise ValueError(1)
    except ValueError as e:
        pass
    return e
## raise_from
def main():
    try:
        int('x')
    except ValueError as e:
        raise RuntimeError('outer') from e
## raise_from_none
def main():
    try:
        {}[1]
    except KeyError:
        raise RuntimeError('outer') from None
## raise_from_class
def main():
    raise RuntimeError('outer') from KeyError
## raise_from_nonsense
def main():
    raise RuntimeError('outer') from 3
## raise_nonsense
def main():
    raise 3
## raise_class_with_bad_init
def main():
    class E(Exception):
        def __init__(self, needed):
            self.needed = needed
    raise E
## raise_class_that_makes_something_else
def main():
    class E(Exception):
        def __new__(cls):
            return 3
    raise E
## bare_raise_without_exception
def main():
    raise
## bare_raise_in_a_callee
def again():
    raise
def main():
    try:
        1 / 0
    except ZeroDivisionError:
        again()
## bare_raise_keeps_the_traceback
def main():
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            x = 1
            raise
    except ZeroDivisionError as e:
        return e
## raise_the_same_again
def main():
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise e
    except ZeroDivisionError as e:
        return e
## implicit_context
def main():
    try:
        try:
            {}['a']
        except KeyError:
            undefined_name
    except NameError as e:
        return e
## context_over_three
def third():
    try:
        1 / 0
    except ZeroDivisionError:
        [][0]
def main():
    try:
        try:
            'a' + 1
        except TypeError:
            third()
    except IndexError as e:
        return e
## context_is_not_a_cycle
def main():
    a, b = ValueError('a'), KeyError('b')
    try:
        try:
            raise a
        except ValueError:
            try:
                raise b
            except KeyError:
                raise a
    except ValueError as e:
        return e
## context_of_native_code
import json
def main():
    try:
        1 / 0
    except ZeroDivisionError:
        json.loads('{')
## handled_is_restored
import sys
def inner():
    try:
        raise KeyError(1)
    except KeyError:
        return repr(sys.exc_info()[1])
def main():
    log = [sys.exc_info()]
    try:
        raise ValueError(0)
    except ValueError:
        log.append(repr(sys.exception()))
        log.append(inner())
        log.append(repr(sys.exc_info()[1]))
    log.append(sys.exc_info())
    return log
## exception_in_except_clause
def main():
    try:
        1 / 0
    except undefined_kind:
        return 1
## catching_nonsense
def main():
    try:
        1 / 0
    except 3:
        return 1
## catching_nonsense_in_a_tuple
def main():
    try:
        1 / 0
    except (ValueError, 'x'):
        return 1
## notes
def main():
    e = ValueError('x')
    e.add_note('first')
    e.add_note('second')
    raise e
## custom_exception
class Mine(ValueError):
    def __init__(self, code, **more):
        super().__init__(code)
        self.code, self.more = code, more
def main():
    try:
        raise Mine(3, a=1)
    except ValueError as e:
        return e, e.code, e.more
## except_star
def main():
    log = []
    try:
        raise ExceptionGroup('g', [ValueError(1), TypeError(2), ExceptionGroup('h',
        [ValueError(3)])])
    except* ValueError as e:
        log.append(e)
    except* TypeError as e:
        log.append(e)
    return log
## except_star_rest
def main():
    try:
        raise ExceptionGroup('g', [ValueError(1), OSError(2)])
    except* ValueError as e:
        pass
## except_star_naked
def main():
    try:
        raise ValueError(1)
    except* ValueError as e:
        return_ = e
    return return_
## except_star_no_match
def main():
    try:
        raise ValueError(1)
    except* TypeError:
        pass
## except_star_raises
def main():
    try:
        raise ExceptionGroup('g', [ValueError(1), OSError(2), TypeError(3)])
    except* ValueError as e:
        raise KeyError('new')
    except* OSError:
        raise
## except_star_raises_two
def main():
    try:
        raise ExceptionGroup('g', [ValueError(1), OSError(2)])
    except* ValueError as e:
        raise KeyError('new') from e
    except* OSError:
        1 / 0
## except_star_reraises_all
def main():
    try:
        raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [OSError(2), KeyError(3)])])
    except* OSError:
        raise
    except* ValueError:
        raise
## except_star_base_group
def main():
    try:
        raise BaseExceptionGroup('g', [ValueError(1), KeyboardInterrupt()])
    except* KeyboardInterrupt as e:
        found = e
    return found
## except_star_of_group
def main():
    try:
        raise ValueError(1)
    except* ExceptionGroup:
        pass
## except_star_of_group_in_tuple
def main():
    try:
        raise ValueError(1)
    except* (TypeError, ExceptionGroup):
        pass
## except_star_finally_else
def f(kind, log):
    try:
        if kind:
            raise kind(1)
    except* (ValueError, TypeError) as e:
        log.append(e.exceptions)
    else:
        log.append('else')
    finally:
        log.append('finally')
def main():
    log = []
    for kind in (None, ValueError, TypeError):
        f(kind, log)
    return log
## group_notes_survive_a_split
def main():
    g = ExceptionGroup('g', [ValueError(1), OSError(2)])
    g.add_note('n')
    try:
        raise g
    except* ValueError as e:
        raise
## with_statement
class C:
    def __init__(self, log, suppress):
        self.log, self.suppress = log, suppress
    def __enter__(self):
        self.log.append('enter')
        return self
    def __exit__(self, kind, error, tb):
        self.log.append((kind, str(error), tb is not None and tb.tb_lineno))
        return self.suppress
def main():
    log = []
    with C(log, False) as c:
        log.append(c.suppress)
    with C(log, True), C(log, False):
        1 / 0
    with (C(log, 1) as a, C(log, 0) as b):
        raise KeyError(a is b)
    for i in range(3):
        with C(log, False):
            if i == 1:
                continue
            if i == 2:
                break
    return [c for c in log]
## with_return
class C:
    def __enter__(self):
        return 1
    def __exit__(self, *a):
        print('exit', a)
def main():
    with C() as x:
        return x + 1
## exit_raises
class C:
    def __enter__(self):
        return 1
    def __exit__(self, *a):
        raise KeyError('exit')
def main():
    with C():
        1 / 0
## exit_raises_alone
class C:
    def __enter__(self):
        return 1
    def __exit__(self, *a):
        [][1]
def main():
    with C():
        pass
## enter_raises
class C:
    def __enter__(self):
        raise KeyError('enter')
    def __exit__(self, *a):
        print('never')
def main():
    with C():
        pass
## not_a_context_manager
def main():
    with 3:
        pass
## no_exit
class C:
    def __enter__(self):
        print('never')
def main():
    with C():
        pass
## instance_attributes_are_not_the_protocol
class C:
    pass
def main():
    c = C()
    c.__enter__ = c.__exit__ = lambda *a: None
    with c:
        pass
## truth_of_exit_fails
class Truth:
    def __bool__(self):
        raise OSError('truth')
class C:
    def __enter__(self):
        pass
    def __exit__(self, *a):
        return Truth()
def main():
    with C():
        1 / 0
## contextlib_managers
import contextlib
@contextlib.contextmanager
def managed(log):
    log.append('in')
    try:
        yield 5
    except ValueError as e:
        log.append(e)
    finally:
        log.append('out')
def main():
    log = []
    with managed(log) as x:
        log.append(x)
    with managed(log):
        raise ValueError('caught')
    with contextlib.suppress(KeyError):
        {}[1]
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(log))
        stack.callback(log.append, 'callback')
    try:
        with managed(log):
            raise TypeError('through')
    except TypeError as e:
        log.append(str(e))
    return log
## assertion
def main():
    assert 1 + 1 == 2, 'fine'
    assert not [1], 'a ' + 'message'
## assertion_alone
def main():
    assert []
## recursion
def down(n):
    return down(n + 1)
def main():
    try:
        down(0)
    except RecursionError as e:
        return 'deep', str(e)[:32]
## deep_but_fine
def down(n):
    return 0 if n == 0 else 1 + down(n - 1)
def main():
    return down(500)
## traceback_in_the_handler
import traceback
def g(x):
    return 1 / x
def main():
    try:
        g(0)
    except ZeroDivisionError as e:
        found = [(s.name, s.lineno) for s in traceback.extract_tb(e.__traceback__)]
        text = traceback.format_exc()
    return found, text
## traceback_is_cleared
def main():
    try:
        1 / 0
    except ZeroDivisionError as e:
        e.__traceback__ = None
        kept = e
    return kept
## traceback_of_two_raises
def f(e):
    raise e
def main():
    e = ValueError(1)
    for _ in range(2):
        try:
            f(e)
        except ValueError:
            pass
    return e
## finally_with_two_frames
def f():
    try:
        g()
    finally:
        print('f')
def g():
    try:
        1 / 0
    finally:
        print('g')
def main():
    try:
        f()
    finally:
        print('main')
## system_exit
def main():
    raise SystemExit(3)
## exception_dict_is_clean
def main():
    try:
        1 / 0
    except ZeroDivisionError as e:
        return vars(e)
## handler_order
class A(Exception): pass
class B(A): pass
def main():
    log = []
    for kind in (A, B):
        try:
            raise kind
        except B:
            log.append('B')
        except A:
            log.append('A')
    return log
## loop_of_exceptions
def main():
    count = 0
    for i in range(20):
        try:
            if i % 3 == 0:
                raise ValueError
            elif i % 3 == 1:
                raise KeyError
        except ValueError:
            count += 1
        except KeyError:
            count += 10
        else:
            count += 100
    return count
## while_try_else
def main():
    n, log = 3, []
    while n:
        try:
            n -= 1
            if n == 1:
                raise ValueError
        except ValueError:
            log.append('e')
            continue
        log.append(n)
    else:
        log.append('done')
    return log
## unbound_local
def main():
    if 0:
        x = 1
    return x
## unbound_free
def main():
    def inner():
        return x
    inner()
    x = 1
## unbound_cell
def main():
    def inner():
        return x
    return x
    x = 1
## deleted_local
def main():
    x = 1
    del x
    del x
## deleted_cell
def main():
    x = 1
    def inner():
        return x
    del x
    return inner()
## deleted_cell_twice
def main():
    x = 1
    def inner():
        nonlocal x
        del x
    inner()
    inner()
## no_such_global
def main():
    return nowhere
## no_such_global_deleted
def main():
    global nowhere
    del nowhere
## name_error_in_class
def main():
    class C:
        x = nowhere
## name_error_deleted_in_class
def main():
    class C:
        del nowhere
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_exceptions(name: str) -> None:
    check(PROGRAMS[name])

"""Programs that assert: apart from the tests, whose own ``assert`` pytest writes anew."""

from __future__ import annotations

from typing import Any

import torch


def plain(x: Any, log: list) -> Any:
    log.append("before")
    y = x * 2
    assert (x > -5).all(), "all of them"
    log.append("after")
    return y + 1


def both(x: Any, log: list) -> Any:
    assert x.sum() > 0 and x.max() < 20, ("text", 1)
    return x * 2


def negated(x: Any, log: list) -> Any:
    assert not (x < -5).any()
    return x * 3


def computed_text(x: Any, log: list) -> Any:
    y = x + 1
    try:
        assert (x > -5).all(), f"of {tuple(x.shape)}"
        log.append("held")
    except AssertionError as error:
        log.append(str(error))
        return y
    return y * 2


def written(x: Any, log: list) -> Any:
    x.add_(1)
    assert x.min() > -4, "written"
    x.mul_(2)
    log.append("both")
    return x + 1


def raising(x: Any, log: list) -> Any:
    log.append("before")
    if (x < -5).any():
        raise ValueError(f"values of {tuple(x.shape)}")
    log.append("after")
    return x + 1


def looping(x: Any, log: list) -> Any:
    for i in range(3):
        x = x + 1
        if x.max() > 8:
            raise StopIteration(i)
        log.append(i)
    return x


def _inner(y: Any) -> Any:
    assert y.sum() > 0, "inner"
    return y + 1


def nested(x: Any, log: list) -> Any:
    log.append(0)
    z = _inner(x * 2)
    log.append(1)
    return _inner(z)


def by_torch(x: Any, log: list) -> Any:
    torch._assert((x > -5).all(), "torch's")
    return x * 2


def number(x: Any, log: list) -> Any:
    n = (x > 0).sum().item()
    assert n > 1, "few"
    return x * n


def as_numbers(x: Any, log: list) -> Any:
    assert bool((x > -5).all()), "a bool"
    return x * int(x.isfinite().sum()) + float(x.sum())


def cleaned_up(x: Any, log: list) -> Any:
    try:
        with torch.no_grad():
            assert (x > -5).all(), "inside"
            y = x * 2
        if (x > 20).any():
            raise LookupError("large")
    finally:
        log.append("left")
    return y


def distribution(x: Any, log: list) -> Any:
    try:
        normal = torch.distributions.Normal(x, x + 4)
    finally:
        log.append("made")
    return normal.log_prob(x)


def _check(condition: Any, message: Any) -> None:
    def said() -> Any:
        return message

    torch._check_tensor_all(condition, said)


def checked(x: Any, log: list) -> Any:
    n = (x > 0).sum()
    _check(x > -5, f"{n} of {x.shape} in {x}")
    log.append("held")
    return x * 2


def checked_after_a_change(x: Any, log: list) -> Any:
    text = f"at first {x.sum()!r}"
    x.add_(1)
    torch._check_tensor_all_with(LookupError, x > -4, lambda: text)
    return x * 3


def written_and_negated(x: Any, log: list) -> Any:
    x.add_(1)
    if (x < -5).any():
        raise LookupError("small")
    torch._check_tensor_all(x < 20, lambda: f"large: {len(x)}")
    return x * 2

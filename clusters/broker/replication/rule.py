"""A rule: a function of the core that another one may stand in for.

So a mistake can be put into the core (see `nemesis/search/mutants`), whoever calls the rule and
however it was imported. A rule decides something by itself; what only serves one is plain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Generic, ParamSpec, Self, TypeVar, overload

Takes = ParamSpec("Takes")
Gives = TypeVar("Gives")


class Rule(Generic[Takes, Gives]):
    """`own`: the core's. `now`: what a call does."""

    def __init__(self, own: Callable[Takes, Gives]) -> None:
        update_wrapper(self, own)
        self.own = self.now = own

    def __call__(self, *args: Takes.args, **named: Takes.kwargs) -> Gives:
        return self.now(*args, **named)

    @overload
    def __get__(self, one: None, of: type) -> Self: ...

    @overload
    def __get__(self, one: object, of: type) -> Callable[..., Gives]: ...

    def __get__(self, one: object, of: type) -> Self | Callable[..., Gives]:
        """A rule that is a method."""
        return self if one is None else MethodType(self.now, one)


def rule(own: Callable[Takes, Gives]) -> Rule[Takes, Gives]:
    return Rule(own)

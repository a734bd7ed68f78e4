"""Shapes and types that functions are annotated with, executed by beartype in the test run alone.

jaxtyping's own import hook wraps every function, those inside of others each time that they are
made, and doubles the time of the tests of `physics`. This one wraps public functions and
dataclasses that mention an array, and looks once at each combination of types and shapes that a
function is called with: what has passed would pass again.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import jax
import jaxtyping
import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from beartype.door import die_if_unbearable

CHECKED = ("physics", "env", "gym", "exam", "datasets", "agents")
"""Folders and modules of the package whose annotations are executed."""


_NUMBERS = BeartypeConf(
    hint_overrides=FrozenDict(
        {int: int | np.integer, float: float | int | np.integer | np.floating}
    )
)
"""Numbers of NumPy are numbers."""

WRAPPED: list[Callable[..., Any]] = []
"""Functions whose annotations are executed, of the modules that have been imported."""


def install() -> None:
    """From now on modules are checked that are imported, so this comes before all of them."""
    assert not any(is_checked(name) for name in sys.modules)
    sys.meta_path.insert(0, _Finder())


def checked(thing: Any) -> Any:
    """A function, or the constructor of a dataclass, that refuses other arrays than it names."""
    if isinstance(thing, type):
        thing.__init__ = checked(thing.__init__)
        return thing
    return _wrap(thing) if _mentions_arrays(thing) else thing


def check_fields(value: Any) -> None:
    """Refuse a dataclass or named tuple whose arrays are not what its fields say.

    For pytrees, whose constructors are not checked: JAX makes them of flags, of shapes, of nothing.
    """
    with jaxtyping.jaxtyped("context"):
        for name, hint in get_type_hints(type(value), include_extras=True).items():
            die_if_unbearable(getattr(value, name), hint)


def _wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    passed: set[Any] = set()
    WRAPPED.append(function)

    @functools.cache
    def typed() -> Callable[..., Any]:
        # When it is first called all that its annotations name is defined.
        hints = get_type_hints(function, include_extras=True)
        function.__annotations__ = {
            name: hint if name == "return" else _as_jax_takes_it(hint)
            for name, hint in hints.items()
        }
        return beartype(function, conf=_NUMBERS)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        kinds = (*map(_kind, args), *kwargs, *map(_kind, kwargs.values()))
        if kinds in passed:
            return function(*args, **kwargs)
        with jaxtyping.jaxtyped("context"):
            result = typed()(*args, **kwargs)
        passed.add(kinds)
        return result

    return run


def _as_jax_takes_it(hint: Any) -> Any:
    """What is annotated as an array of JAX may be one of NumPy, of the same type and shape."""
    if get_origin(hint) in (Union, UnionType):
        return functools.reduce(operator.or_, map(_as_jax_takes_it, get_args(hint)))
    is_array = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return hint.dtype[Any, hint.dim_str] if is_array and hint.array_type is jax.Array else hint


def _kind(value: Any) -> Any:
    """All of an argument that its annotation can be about."""
    if isinstance(value, tuple):
        return type(value), *map(_kind, value)
    return type(value), getattr(value, "shape", None), getattr(value, "dtype", None)


def _mentions_arrays(function: Callable[..., Any]) -> bool:
    words = re.findall(r"\w+", " ".join(map(str, function.__annotations__.values())))
    return any(_is_array(function.__globals__.get(word)) for word in words)


def _is_array(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(
        hint, (jaxtyping.AbstractArray, jaxtyping.AbstractDtype)
    ):
        return True
    return any(map(_is_array, get_args(hint)))


class _Marker(ast.NodeTransformer):
    """Decorates what is public, innermost, so that it is wrapped before anything holds it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # not what is inside of it
        if not node.name.startswith("_") or node.name == "__call__":
            node.decorator_list.append(_name(node))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        # See `check_fields`.
        is_pytree = any("register_dataclass" in decorator for decorator in decorators)
        if any(decorator.startswith("dataclass") for decorator in decorators) and not is_pytree:
            node.decorator_list.insert(0, _name(node))
        return node


def _name(place: ast.stmt) -> ast.expr:
    return ast.copy_location(ast.Name("_checked", ast.Load()), place)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:  # never what is kept compiled, nor kept itself
        path = self.get_filename(fullname)
        tree = _Marker().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        module._checked = checked
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if is_checked(name) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def is_checked(name: str) -> bool:
    """Whether annotations of this module are executed."""
    package, *folder = name.split(".")[:2]
    return package == "tapebench" and folder != [] and folder[0] in CHECKED

"""Annotations, as endpoints are made from them."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional, TypeVar, get_args

import pytest

from throttled_views._annotations import is_open, substituted
from throttled_views._binding import return_annotation_of

OneT = TypeVar("OneT")
TwoT = TypeVar("TwoT")

# As values, which no checker takes for types.
a_list: Any = list
a_dict: Any = dict
an_optional: Any = Optional
an_annotated: Any = Annotated
a_callable: Any = Callable


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param(OneT, int, id="variable"),
        pytest.param(TwoT, TwoT, id="another variable"),
        pytest.param(a_list[OneT], list[int], id="list"),
        pytest.param(an_optional[OneT], an_optional[int], id="union"),
        pytest.param(an_annotated[OneT, "x"], Annotated[int, "x"], id="annotated"),
        pytest.param(Literal["a"], Literal["a"], id="literal"),
        pytest.param(a_dict[str, a_list[OneT]], dict[str, list[int]], id="nested"),
    ],
)
def test_variables_are_replaced(annotation: object, expected: object) -> None:
    """Wherever a type variable stands, what it stands for is put in its place."""
    assert expected == substituted(annotation, {OneT: int})


def test_variables_of_a_callable_are_replaced() -> None:
    """Its parameters stand in a list of their own."""
    annotation = a_callable[[OneT, str], OneT]

    replaced = substituted(annotation, {OneT: int})

    assert ([int, str], int) == get_args(replaced)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param(a_callable[[OneT], int], True, id="in a callable"),
        pytest.param(a_callable[[int], int], False, id="not in a callable"),
        pytest.param(an_annotated[int, OneT], False, id="in metadata"),
        pytest.param(a_list[OneT], True, id="in a list"),
    ],
)
def test_a_variable_that_is_left_is_found(
    annotation: object, *, expected: bool
) -> None:
    """An annotation is open if FastAPI would meet a type variable in it."""
    assert expected == is_open(annotation, set())


@pytest.mark.parametrize("function", [max, 5], ids=["of C", "no function"])
def test_what_does_not_tell_what_it_returns_may_return_text(function: object) -> None:
    """So it is not taken for a handler."""
    assert str is return_annotation_of(function)

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

def register_trainer(name: str) -> Callable[[T], T]: ...

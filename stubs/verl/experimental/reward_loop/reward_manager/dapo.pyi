# Types for the parts of verl that we subclass or decorate with; verl ships no types, so the rest is Any.
from typing import Any

class DAPORewardManager:
    tokenizer: Any
    def __init__(self, *args: Any, **options: Any) -> None: ...
    async def run_single(self, data: Any) -> dict[str, Any]: ...

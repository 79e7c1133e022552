"""Says in words why the Hugging Face Hub refuses a model or a data set."""

from collections.abc import Iterator
from contextlib import contextmanager

from mcpo_cli.errors import ConfigError, first_line


@contextmanager
def fetching(name: str, page: str, otherwise: str) -> Iterator[None]:
    """Turn the errors of the hub's client into one that says why `name` cannot be fetched, and what helps.

    page: its address on the hub. otherwise: what helps where there is no network.

    Raises:
        ConfigError: see above.
    """
    from huggingface_hub import constants, errors

    try:
        yield
    except Exception as error:  # no network, a timeout, a full disk: the client's errors have no common class
        repository = page.removeprefix("https://huggingface.co/")
        network_reason = f"not in the cache, and not available from {constants.ENDPOINT}: {first_line(error)}"
        licence = "the Hugging Face Hub provides it only after you accept its licence"
        reasons: tuple[tuple[type[Exception], str, str], ...] = (
            (errors.GatedRepoError, licence, f"accept its licence at {page}, then hf auth login"),
            (
                errors.RepositoryNotFoundError,
                f"the Hugging Face Hub has no {repository}, or you have no access to it",
                "check the name; if it is private: hf auth login",
            ),
            (errors.RevisionNotFoundError, "it has no such revision", f"a commit of {page}/commits/main"),
            (errors.LocalEntryNotFoundError, network_reason, otherwise),
            (errors.EntryNotFoundError, "the repository has no such file", otherwise),
            (Exception, network_reason, otherwise),
        )
        reason, fix = next((reason, fix) for kind, reason, fix in reasons if isinstance(error, kind))
        fixes = "; or ".join(dict.fromkeys([fix, otherwise]))
        raise ConfigError(f"{name}: {reason}", fix=fixes, code="unreachable") from error

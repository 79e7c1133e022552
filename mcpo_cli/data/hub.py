"""Fetches a data set's file at its pinned revision, from the hub or its local cache."""

from pathlib import Path

from mcpo_cli.data import files
from mcpo_cli.data.base import Dataset
from mcpo_cli.errors import ConfigError


def cached(dataset: Dataset) -> Path | None:
    """The file of `dataset` in the local cache, None if it was never downloaded; or its file on this machine."""
    if not dataset.repo:
        return files.locate(Path(dataset.file), dataset.name)
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(dataset.repo, dataset.file, repo_type="dataset", revision=dataset.revision)
    return Path(path) if isinstance(path, str) else None


def fetch(dataset: Dataset) -> Path:
    """The file of `dataset`, downloaded once; a file in the cache needs no network.

    Raises:
        ConfigError: the hub cannot be reached, or does not serve that file.
    """
    return cached(dataset) or _download(dataset)


def _download(dataset: Dataset) -> Path:
    from httpx import TransportError
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub import errors as hub

    repo, file, revision = dataset.repo, dataset.file, dataset.revision
    try:
        # Without a network this fails at once; the download would retry for half a minute first.
        get_hf_file_metadata(hf_hub_url(repo, file, repo_type="dataset", revision=revision))
        return Path(hf_hub_download(repo, file, repo_type="dataset", revision=revision))
    except (TransportError, OSError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        reasons: tuple[tuple[type[Exception], str], ...] = (
            (hub.OfflineModeIsEnabled, "is not in the cache, and HF_HUB_OFFLINE forbids downloads"),
            (TransportError, f"is not in the cache, and the hub cannot be reached ({said})"),
            (hub.GatedRepoError, "is gated: request access on its page, then log in with `hf auth login`"),
            (hub.RepositoryNotFoundError, "does not exist there, or is private"),
            (hub.RevisionNotFoundError, "exists, but not at this revision"),
            (hub.EntryNotFoundError, f"has no file '{file}'"),
            # Any other answer of the hub, or a cache that is full or read-only.
            (OSError, f"could not be fetched: {said}"),
        )
        why = next(why for kind, why in reasons if isinstance(error, kind))
        fix = f"use a copy (parquet or JSONL): data.path=FILE, or mcpo data audit FILE --as {dataset.name}"
        raise ConfigError(
            f"{dataset.name}: {repo}@{revision} on {constants.ENDPOINT} {why}", fix=fix, code="unreachable"
        ) from error

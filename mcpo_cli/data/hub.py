"""One file of a repository on the hub, at a pinned revision, from the hub or from its local cache."""

from pathlib import Path

from mcpo_cli.data.base import Dataset
from mcpo_cli.errors import ConfigError

OFFLINE = "data.path=FILE with a local copy (parquet or JSONL)"


def is_cached(dataset: Dataset) -> bool:
    """Whether `fetch` needs no network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(dataset.repo, dataset.file, repo_type="dataset", revision=dataset.revision)
    return isinstance(found, str)


def fetch(dataset: Dataset) -> Path:
    """The file of `dataset`, downloaded once; a file in the cache needs no network.

    Raises:
        ConfigError: the hub cannot be reached, or does not hand out that file.
    """
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub import errors as hub

    where = f"{dataset.name}: {dataset.repo}@{dataset.revision[:12]} on {constants.ENDPOINT}"
    try:
        return Path(
            hf_hub_download(dataset.repo, dataset.file, repo_type="dataset", revision=dataset.revision, etag_timeout=10)
        )
    except hub.GatedRepoError as error:
        problem, fix = "is gated: its owner wants to know who you are", f"hf auth login, or {OFFLINE}"
        raise ConfigError(f"{where} {problem}", fix=fix) from error
    except hub.RepositoryNotFoundError as error:
        raise ConfigError(f"{where}: no such data set, or it is private", fix=OFFLINE) from error
    except hub.RevisionNotFoundError as error:
        raise ConfigError(f"{where}: the data set has no such revision any more", fix=OFFLINE) from error
    except hub.LocalEntryNotFoundError as error:
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "no network, or the hub is down"
        raise ConfigError(f"{where} cannot be reached and is not cached: {why}", fix=OFFLINE) from error
    except hub.EntryNotFoundError as error:
        raise ConfigError(f"{where}: no file '{dataset.file}' in it", fix=OFFLINE) from error
    except OSError as error:  # every other answer of the hub, and a full or read-only cache
        raise ConfigError(f"{where} could not be fetched: {str(error).splitlines()[0]}", fix=OFFLINE) from error

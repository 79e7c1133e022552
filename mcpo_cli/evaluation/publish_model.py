"""Uploads an exported policy to the Hugging Face hub."""

from pathlib import Path

from mcpo_cli.errors import ConfigError, first_line
from mcpo_cli.model_facts import HUB_ID
from mcpo_cli.runs import folders


def check(repository: str) -> None:
    """Raise ConfigError if `repository` is no name of a model of the hub, or this machine has no token for it."""
    from huggingface_hub import get_token

    if not HUB_ID.fullmatch(repository):
        raise ConfigError(f"--push {repository}: a model of the hub is named OWNER/NAME", fix="--push OWNER/NAME")
    if get_token() is None:
        raise ConfigError("--push needs a token of the Hugging Face hub that may write", fix="hf auth login")


def push(folder: Path, repository: str, message: str) -> str:
    """Upload the files of `folder` in one commit; returns the model's address. A model that is new becomes private.

    Raises:
        ConfigError: the hub does not take it; the folder stays.
    """
    from huggingface_hub import HfApi

    hub = HfApi()
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=message, ignore_patterns=[folders.MANIFEST]
        )
    except Exception as error:  # no network, no rights, a full quota: the client's errors have no common class
        raise ConfigError(
            f"{repository} was not uploaded to {hub.endpoint}: {first_line(error)}",
            fix=f"hf upload {repository} {folder}  (the folder is whole)",
        ) from error
    return f"{hub.endpoint}/{repository}"

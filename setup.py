"""Where the packages of the study are in an installation, which pyproject.toml cannot say: see `mcpo_cli/study`."""

from setuptools import find_packages, setup

FOLDERS = find_packages(include=["analysis*", "experiments*"])
STUDY = {f"mcpo_cli.study.{name}": name.replace(".", "/") for name in FOLDERS}

setup(packages=[*find_packages(include=["mcpo_cli*"]), *STUDY], package_dir=STUDY)

from mcpo_cli.config.schema import RunSpec


def check(spec: RunSpec) -> None: ...

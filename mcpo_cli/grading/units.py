"""Units after a number, and the ratio of one unit to another: `50 cm` is `0.5 m`."""

import re
from fractions import Fraction

from mcpo_cli.grading.spelling import plain

_MEASURE = r"[A-Za-z\u4e00-\u9fff]+(?:\s*\^\s*\{?\d\}?)?"
_MEASURED = re.compile(rf"[\d}})](?:[\s~]|\\[,;: ])*({_MEASURE}(?:\s*(?:/|\bper\b)\s*{_MEASURE})*)\.?\s*$")
_SPELLED = (
    "mm millimeters; cm centimeters; dm; m meters meter; km kilometers; in inches inch; ft feet foot; yd yards yard; "
    "mi miles mile; mg; g grams; kg kilograms; lb lbs pounds; oz ounces; ml; l liters; ms; s sec secs seconds second; "
    "min mins minutes minute; h hr hrs hours hour; d days day; weeks week; months month; years year; dollars dollar; "
    "cents cent; euros euro eur; sterling gbp; yen; rupees; degrees degree; radians rad; n newtons newton; "
    "j joules joule; w watts watt; kw; v volts volt; hz hertz; khz; pa pascals; kpa; mol moles; mmol; kj; "
    "cal calories; kcal; mm 毫米; cm 厘米; dm 分米; m 米; km 千米 公里; g 克; kg 千克 公斤; min 分钟; h 小时; d 天"
)
_SPEED = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "fps": "ft/s"}
_UNITS = {word: words.split()[0] for words in _SPELLED.split("; ") for word in words.split()}
"""Units by their spellings."""
_SCALES: tuple[dict[str, int], ...] = (
    {"mm": 1, "cm": 10, "dm": 100, "m": 1000, "km": 1_000_000},
    {"in": 1, "ft": 12, "yd": 36, "mi": 63_360},
    {"mg": 1, "g": 1000, "kg": 1_000_000},
    {"oz": 1, "lb": 16},
    {"ml": 1, "l": 1000},
    {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "weeks": 604_800_000},
    {"cents": 1, "dollars": 100},
    *({unit: 1, f"k{unit}": 1000} for unit in ("w", "hz", "pa", "j", "cal")),
    {"mmol": 1, "mol": 1000},
)
"""Units of one kind, in multiples of the first: only what is exact."""


def unit_of(text: str) -> tuple[tuple[str, str], ...]:
    """The known units after a number, each with its power: ((km, ""), (h, "")); empty if there are none."""
    measured = _MEASURED.search(plain(text))
    parts = [part.strip() for part in re.split(r"/|\bper\b", _SPEED.get(measured[1], measured[1]))] if measured else []
    units = [(_UNITS.get(re.sub(r"\W.*", "", part).lower(), ""), re.sub(r"\D", "", part)) for part in parts]
    return tuple(units) if all(unit for unit, _ in units) else ()


def ratio(gold: str, answer: str) -> Fraction | None:
    """The factor from the units of `answer` to the units of `gold`; None if these are not of one kind."""
    units, scale = (unit_of(gold), unit_of(answer)), Fraction(1)
    if len(units[0]) != len(units[1]):
        return None
    for place, ((target, power), (unit, unit_power)) in enumerate(zip(*units, strict=True)):
        sizes = next((sizes for sizes in _SCALES if {target, unit} <= sizes.keys()), {target: 1})
        if unit not in sizes or power != unit_power:
            return None
        # The first unit is divided by the units after it.
        scale *= Fraction(sizes[unit], sizes[target]) ** (int(power or 1) * (-1 if place else 1))
    return scale

"""Ledgers in the words of dp-accounting, so that others can price them again.

An event that dp-accounting knows becomes that event; every other one becomes `UnsupportedDpEvent`, which no
accountant there will price by mistake, and its parameters stand beside it.  The form is that of
`DpEvent.to_named_tuple`; `rebuilt` makes the events of an export again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from distadmm.privacy.accounting.cost import counted
from distadmm.privacy.accounting.events import Event

_MODULE = "dp_accounting.dp_event"


def _dp(name: str, **fields: Any) -> dict[str, Any]:
    return {"module_name": _MODULE, "class_name": name, **fields}


def dp_event(events: Iterable[Event]) -> dict[str, Any]:
    """One composed event of dp-accounting, as JSON."""
    parts = []
    for event in counted(events):
        name, fields = event.single().exported()
        single = _dp(name, **fields)
        composed = event.releases > 1 and single["class_name"] != "UnsupportedDpEvent"
        parts.append(_dp("SelfComposedDpEvent", event=single, count=event.releases) if composed else single)
    return _dp("ComposedDpEvent", events=parts)


def rebuilt(exported: Mapping[str, Any]) -> Any:
    """The dp-accounting event that `dp_event` wrote; needs dp-accounting."""
    from dp_accounting import dp_event as known

    def build(value: Any) -> Any:
        if isinstance(value, Mapping):
            fields = {key: build(item) for key, item in value.items()}
            fields.pop("module_name")
            return getattr(known, fields.pop("class_name"))(**fields)
        return [build(item) for item in value] if isinstance(value, list) else value

    return build(exported)

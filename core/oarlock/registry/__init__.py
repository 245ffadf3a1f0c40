"""Discovery: which plugins are installed, loading one by name, and what adapters and devices there are."""

from oarlock.registry import loading, report
from oarlock.registry.loading import get_adapter, load, names
from oarlock.registry.report import AdapterReport, DeviceReport, adapter_report, adapter_reports

__all__ = [
    "AdapterReport", "DeviceReport", "adapter_names", "adapter_report", "adapter_reports", "forget", "get_adapter",
    "load", "names",
]  # fmt: skip


def adapter_names() -> tuple[str, ...]:
    """The names of the installed adapters, sorted. Nothing is loaded."""
    return names("oarlock.adapters")


def forget() -> None:
    """Forget what was found, loaded and reported: the next use looks again, and tries again what failed."""
    loading.forget()
    report.forget()

"""What executions do, told to OpenTelemetry: spans and metrics."""

from divebook.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]

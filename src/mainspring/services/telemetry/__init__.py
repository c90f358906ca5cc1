"""OpenTelemetry: `tracing` makes spans; `traced_store`, `traced_executors` and `pool_spans` place them; `exporting`
sends them and the metrics to a collector. Only `wiring` imports these modules, and only where `otel` names one."""

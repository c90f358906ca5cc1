-- The reports, and each of their executions.
CREATE SCHEMA reports;

CREATE TABLE reports.sent (
    report  text NOT NULL,
    fire_at timestamptz NOT NULL,
    run     text NOT NULL,
    process int NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

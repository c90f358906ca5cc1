-- What is reported on, and each report that was sent.
CREATE SCHEMA reports;

CREATE TABLE reports.orders (id int PRIMARY KEY, country text NOT NULL, amount int NOT NULL);

INSERT INTO reports.orders
SELECT i, (ARRAY['DE', 'FR', 'JP', 'US'])[1 + i % 4], 10 + i % 90 FROM generate_series(1, 1000) i;

CREATE TABLE reports.sent (
    report  text NOT NULL,
    fire_at timestamptz NOT NULL,
    run     text NOT NULL,
    process int NOT NULL,
    text    text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What the maintenance jobs work on, by data center, and what they did.
CREATE SCHEMA google;

CREATE TABLE google.cache (region text NOT NULL, key int NOT NULL, PRIMARY KEY (region, key));

CREATE TABLE google.objects (region text NOT NULL, id int NOT NULL, referenced boolean NOT NULL, PRIMARY KEY (region, id));

-- The side ledger: one row for each execution.
CREATE TABLE google.done (
    job     text NOT NULL,
    region  text NOT NULL,
    fire_at timestamptz,
    run     text NOT NULL,
    process int NOT NULL,
    figure  bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE google.probes (id bigint PRIMARY KEY, sent_at double precision NOT NULL, at timestamptz NOT NULL);

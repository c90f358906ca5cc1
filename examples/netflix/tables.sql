-- Videos, their encodings, and every attempt at one.
CREATE SCHEMA netflix;

CREATE TABLE netflix.videos (
    id  text PRIMARY KEY,
    url text NOT NULL,
    at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One accepted encoding for each resolution. A worker that was overtaken finds it there, and changes nothing.
CREATE TABLE netflix.outputs (
    video      text NOT NULL REFERENCES netflix.videos,
    resolution text NOT NULL,
    url        text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (video, resolution)
);

-- The side ledger: each start of an encoder; its end, unless its process died; and whether its output was accepted.
CREATE TABLE netflix.encodes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    video      text NOT NULL,
    resolution text NOT NULL,
    process    int NOT NULL,
    began_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    accepted   boolean
);

CREATE TABLE netflix.pages (run text PRIMARY KEY, task text NOT NULL, attempts int NOT NULL);

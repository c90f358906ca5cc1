-- Videos, their encodings, and every attempt at one.
CREATE SCHEMA netflix;

CREATE TABLE netflix.videos (
    id  text PRIMARY KEY,
    url text NOT NULL,
    at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One accepted encoding for each resolution. A worker that was overtaken has an older token, and changes nothing.
CREATE TABLE netflix.outputs (
    video      text NOT NULL REFERENCES netflix.videos,
    resolution text NOT NULL,
    url        text NOT NULL,
    token      int NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (video, resolution)
);

-- The side ledger: each start of an encoder, and its end unless its process died.
CREATE TABLE netflix.encodes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    video      text NOT NULL,
    resolution text NOT NULL,
    process    int NOT NULL,
    began_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz
);

CREATE TABLE netflix.pages (run text PRIMARY KEY, task text NOT NULL, attempts int NOT NULL);

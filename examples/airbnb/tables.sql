-- A marketplace of homes: listings, stays, prices, and what was done for which guest.
CREATE SCHEMA airbnb;

CREATE TABLE airbnb.listings (id int PRIMARY KEY, base_price int NOT NULL);

CREATE TABLE airbnb.stays (
    listing int NOT NULL REFERENCES airbnb.listings,
    night   date NOT NULL,
    PRIMARY KEY (listing, night)
);

CREATE TABLE airbnb.prices (
    listing int NOT NULL REFERENCES airbnb.listings,
    night   date NOT NULL,
    price   int NOT NULL,
    PRIMARY KEY (listing, night)
);

-- One reminder for each stay.
CREATE TABLE airbnb.reminders (
    listing int NOT NULL,
    night   date NOT NULL,
    PRIMARY KEY (listing, night)
);

CREATE TABLE airbnb.trending (place int PRIMARY KEY, listing int NOT NULL REFERENCES airbnb.listings);

-- The side ledger: one row for each execution of a job, with the instant that it belongs to.
CREATE TABLE airbnb.done (
    job     text NOT NULL,
    fire_at timestamptz,
    run     text NOT NULL,
    process int NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Drivers and what they are paid, riders and what they are sent, requests for rides, and fares by area.
CREATE SCHEMA uber;

CREATE TABLE uber.drivers (id int PRIMARY KEY, earned int NOT NULL);

-- One payout for each driver and week, however often it is tried.
CREATE TABLE uber.payouts (
    driver int NOT NULL REFERENCES uber.drivers,
    week   date NOT NULL,
    amount int NOT NULL,
    run    text NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (driver, week)
);

CREATE TABLE uber.requests (rider int NOT NULL, area text NOT NULL, at timestamptz NOT NULL DEFAULT now());

CREATE TABLE uber.surges (area text NOT NULL, fire_at timestamptz NOT NULL, run text NOT NULL, factor real NOT NULL);

CREATE TABLE uber.riders (id int PRIMARY KEY);

-- One mail for each rider and week.
CREATE TABLE uber.promotions (
    rider int NOT NULL,
    week  date NOT NULL,
    at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (rider, week)
);

CREATE TABLE uber.settled (
    ride   bigint PRIMARY KEY,
    due_at double precision NOT NULL,  -- seconds since 1970, as the submitting program knew it
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The side ledger: each attempt, with its process; no end if it was killed.
CREATE TABLE uber.attempts (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task     text NOT NULL,
    run      text NOT NULL,
    attempt  int NOT NULL,
    process  int NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz
);

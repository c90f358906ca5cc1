-- The ledger of a payment service, and a stand-in for its bank.
CREATE SCHEMA stripe;

CREATE TABLE stripe.accounts (
    id      text PRIMARY KEY,
    balance bigint NOT NULL,
    fence   bigint NOT NULL DEFAULT 0  -- the greatest token of a lock that has written here
);

CREATE TABLE stripe.requests (
    payout    text PRIMARY KEY,
    account   text NOT NULL REFERENCES stripe.accounts,
    amount    bigint NOT NULL CHECK (amount > 0),
    due_at    timestamptz NOT NULL DEFAULT now(),
    submitted boolean NOT NULL DEFAULT false
);

CREATE TABLE stripe.entries (
    payout  text PRIMARY KEY,
    account text NOT NULL REFERENCES stripe.accounts,
    amount  bigint NOT NULL,
    fence   bigint NOT NULL,
    run     text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE stripe.refusals (
    payout  text NOT NULL,
    account text NOT NULL,
    fence   bigint NOT NULL,
    newest  bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Book a payout once, and only for the newest holder of the account's lock.
CREATE FUNCTION stripe.book(payout text, account text, amount bigint, token bigint, run text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE newest bigint;
BEGIN
    SELECT fence INTO newest FROM stripe.accounts a WHERE a.id = book.account FOR UPDATE;
    IF token < newest THEN
        INSERT INTO stripe.refusals VALUES (payout, account, token, newest);
        RETURN 'overtaken';
    END IF;
    UPDATE stripe.accounts a SET fence = token WHERE a.id = book.account;
    INSERT INTO stripe.entries VALUES (payout, account, amount, token, run) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'paid before';
    END IF;
    UPDATE stripe.accounts a SET balance = balance - book.amount WHERE a.id = book.account;
    RETURN 'paid';
END $$;

-- The bank: one row for each call that it received; money moves once for each payout.
CREATE TABLE stripe.bank_calls (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payout   text NOT NULL,
    account  text NOT NULL,
    token    bigint NOT NULL,
    process  int NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz
);

CREATE TABLE stripe.bank_transfers (payout text PRIMARY KEY, amount bigint NOT NULL);

CREATE TABLE stripe.bank_faults (payout text PRIMARY KEY, fault text NOT NULL CHECK (fault IN ('slow', 'stall')));

-- idempotency: the answers to requests that came with an Idempotency-Key, one row each, until they expire. A row is written in the
-- transaction of the request's effect, and replaced when it has expired and its key is used again.

create table if not exists idempotency_key (
  -- whose key it is; "C": compared byte by byte
  scope            text collate "C" not null,
  key              text collate "C" not null,
  fingerprint      bytea       not null, -- SHA-256 of the request: method, path, query, media type, encoding and body
  -- the answer; the headers are the lines that are sent
  status_code      smallint    not null,
  response_headers bytea       not null default '',
  response_body    bytea       not null default '',
  created_at       timestamptz not null default clock_timestamp(),
  expires_at       timestamptz not null,
  constraint idempotency_key_pkey primary key (scope, key)
) with (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.05
);

-- for the janitor, which deletes what has expired
create index if not exists idempotency_key_expiry on idempotency_key (expires_at);

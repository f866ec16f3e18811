-- idempotency: the answers to requests that came with an Idempotency-Key, one row each, until they expire. A row is written in the
-- transaction of the request's effect, and replaced when it has expired and its key is used again.

create table if not exists idempotency_key (
  -- whose key it is; compared byte by byte
  scope            text    not null,
  key              text    not null,
  fingerprint      blob    not null, -- SHA-256 of the request: method, path, query, media type, encoding and body
  -- the answer; the headers are the lines that are sent
  status_code      integer not null,
  response_headers blob    not null default '',
  response_body    blob    not null default '',
  created_at       text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  expires_at       text    not null,
  primary key (scope, key)
) without rowid;

-- for the janitor, which deletes what has expired
create index if not exists idempotency_key_expiry on idempotency_key (expires_at);

-- +goose Up
-- 001_processed_event.sql
-- dedup: the events that have taken effect, one row for each event and consumer.

create table if not exists processed_event (
  -- "C": ids are compared byte by byte, and an upgrade of the operating system's collations cannot break the index
  event_id     text collate "C" not null,
  consumer_id  text collate "C" not null,
  processed_at timestamptz not null default clock_timestamp(),
  -- redeliveries; without an index, so that counting one rewrites no index entry
  duplicates   integer     not null default 0,
  constraint processed_event_pkey primary key (event_id, consumer_id)
) with (
  fillfactor = 90, -- room for the counter on the row's own page
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.05
);

-- for the retention, which deletes by age
create index if not exists processed_event_time on processed_event (processed_at);

-- 002_dead_message.sql
-- deadletter: the messages that were given up, one row each, until they are redriven or discarded. The record of the event in processed_event was
-- written in the same transaction.

create table if not exists dead_message (
  id             bigint      not null generated always as identity,
  -- the key of the record in processed_event
  consumer_id    text collate "C" not null,
  event_id       text collate "C" not null,
  -- where the message stood
  group_id       text        not null default '',
  topic          text        not null,
  topic_id       text        not null default '',
  partition      integer     not null,
  kafka_offset   bigint      not null,
  message_time   timestamptz,
  -- what it was, byte by byte; left_out says that it was too large, and that value and headers are not here
  key            bytea,
  value          bytea,
  headers        jsonb       not null default '[]',
  size           bigint      not null default 0,
  left_out       boolean     not null default false,
  -- why it is here
  kind           text        not null,
  error_type     text        not null default '',
  error          text        not null default '',
  attempts       integer     not null default 1,
  first_attempt  timestamptz,
  died_at        timestamptz not null default clock_timestamp(),
  einmal_version text        not null default '',
  trace_id       text        not null default '',
  -- redrives that have failed
  redrives       integer     not null default 0,
  redrive_error  text        not null default '',
  constraint dead_message_pkey primary key (id)
);

-- 004_outbox.sql
-- outbox: events on their way to Kafka, and who may send them.

create table if not exists outbox_event (
  -- drawn in order (CACHE 1) while the writer holds what serialises its key: that order is the key's
  id            bigint generated always as identity,
  event_id      text collate "C" not null,
  topic         text collate "C" not null,
  partition_key bytea,                    -- null is no key, and no order
  payload       bytea,                    -- null is a tombstone
  headers       bytea not null default '', -- a list, see package outbox: order, repetitions and bytes survive
  created_at    timestamptz not null default clock_timestamp(),
  -- one owner at a time sends what is in a bucket; a key is in one bucket
  bucket        smallint not null generated always as
                ((coalesce(hashtextextended(topic || chr(31) || encode(partition_key, 'hex'), 0), id) & 63)::smallint) stored,
  status        text collate "C" not null default 'PENDING',
  attempts      integer not null default 0, -- failures of the row itself
  claims        integer not null default 0, -- times that a two-phase relay took it to send it
  claim_epoch   bigint,                   -- of the lease under which it is being sent
  claimed_until timestamptz,
  published_at  timestamptz,
  last_error    text,
  constraint outbox_event_pkey primary key (id),
  constraint outbox_event_status check (status in ('PENDING', 'PUBLISHING', 'PUBLISHED', 'BLOCKED', 'DEAD'))
) with (
  fillfactor = 80, -- rows that are marked instead of deleted stay on their page
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.02
);

create index if not exists outbox_event_pending on outbox_event (bucket, id) where status = 'PENDING';
create index if not exists outbox_event_claimed on outbox_event (bucket, id) where status = 'PUBLISHING';
create index if not exists outbox_event_blocked on outbox_event (bucket, id) where status = 'BLOCKED';
create index if not exists outbox_event_published on outbox_event (published_at) where status = 'PUBLISHED';

-- who may send the rows of a bucket, in two-phase mode
create table if not exists outbox_lease (
  bucket       smallint not null,
  owner        text collate "C",
  epoch        bigint not null default 0,
  leased_until timestamptz not null default '-infinity',
  constraint outbox_lease_pkey primary key (bucket)
) with (fillfactor = 10, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0.0);

-- how the rows are sent: one row, written by the first relay
create table if not exists outbox_mode (
  only_row boolean not null default true,
  mode     text collate "C" not null,
  constraint outbox_mode_pkey primary key (only_row),
  constraint outbox_mode_only_row check (only_row),
  constraint outbox_mode_known check (mode in ('single-phase', 'two-phase'))
);

-- 005_idempotency_key.sql
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

-- 006_outbox_partition.sql
-- outbox: events that name their partition.

alter table outbox_event add column if not exists partition integer; -- null: the key chooses it
-- +goose Down
drop table idempotency_key;
drop table outbox_mode;
drop table outbox_lease;
drop table outbox_event;
drop table dead_message;
drop table processed_event;

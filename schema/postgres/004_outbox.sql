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

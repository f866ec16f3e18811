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

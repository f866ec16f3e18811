-- dedup: the events that have taken effect, one row for each event and consumer.

create table if not exists processed_event (
  -- compared byte by byte, as SQLite does unless told otherwise; of type text, since another one would take '01' for '1'
  event_id     text not null,
  consumer_id  text not null,
  processed_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  -- redeliveries
  duplicates   integer not null default 0,
  primary key (event_id, consumer_id)
) without rowid;

-- for the retention, which deletes by age
create index if not exists processed_event_time on processed_event (processed_at);

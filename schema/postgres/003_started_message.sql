-- crashloop: the messages whose handler was begun right after a partition was assigned, and has not returned: what ends the process each time is
-- known by its count. Rows go when the handler returns.

create table if not exists started_message (
  consumer_id text collate "C" not null,
  event_id    text collate "C" not null,
  starts      integer     not null default 1,
  started_at  timestamptz not null default clock_timestamp(),
  constraint started_message_pkey primary key (event_id, consumer_id)
);

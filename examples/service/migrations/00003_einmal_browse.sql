-- +goose Up

-- 007_dead_message_group.sql
-- deadletter: indexes by which a table of any size can be looked through: its groups, and the dead letters of one, the newest first; those of an
-- event, of a key, and of a window of time. Where the table is large already, create them beforehand with "create index concurrently", which keeps
-- nobody from writing.

create index if not exists dead_message_group on dead_message (consumer_id, kind, error_type, id);
create index if not exists dead_message_event on dead_message (event_id, id);
-- a key may be larger than an index takes: the first bytes find it
create index if not exists dead_message_key on dead_message (substr(key, 1, 512), id) where key is not null;
create index if not exists dead_message_died on dead_message (died_at, id);

-- 008_outbox_event_dead.sql
-- outbox: an index of what operators have discarded, so that it is found in a large table. Where the table is large already, create it
-- beforehand with "create index concurrently", which keeps nobody from writing.

create index if not exists outbox_event_dead on outbox_event (id) where status = 'DEAD';
-- +goose Down
drop index outbox_event_dead;
drop index dead_message_died;
drop index dead_message_key;
drop index dead_message_event;
drop index dead_message_group;

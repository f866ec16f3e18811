-- +goose Up

-- 007_dead_message_group.sql
-- deadletter: an index by which a table of any size can be looked through: its groups, and the dead letters of one, the newest first. Where
-- the table is large already, create it beforehand with "create index concurrently", which keeps nobody from writing.

create index if not exists dead_message_group on dead_message (consumer_id, kind, error_type, id);

-- 008_outbox_event_dead.sql
-- outbox: an index of what operators have discarded, so that it is found in a large table. Where the table is large already, create it
-- beforehand with "create index concurrently", which keeps nobody from writing.

create index if not exists outbox_event_dead on outbox_event (id) where status = 'DEAD';
-- +goose Down
drop index outbox_event_dead;
drop index dead_message_group;

-- deadletter: indexes by which a table of any size can be looked through: its groups, and the dead letters of one, the newest first; those of an
-- event, of a key, and of a window of time.

create index if not exists dead_message_group on dead_message (consumer_id, kind, error_type, id);
create index if not exists dead_message_event on dead_message (event_id, id);
-- a key may be very large: the first bytes find it
create index if not exists dead_message_key on dead_message (substr(key, 1, 512), id) where key is not null;
create index if not exists dead_message_died on dead_message (died_at, id);

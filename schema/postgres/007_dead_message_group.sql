-- deadletter: an index by which a table of any size can be looked through: its groups, and the dead letters of one, the newest first. Where
-- the table is large already, create it beforehand with "create index concurrently", which keeps nobody from writing.

create index if not exists dead_message_group on dead_message (consumer_id, kind, error_type, id);

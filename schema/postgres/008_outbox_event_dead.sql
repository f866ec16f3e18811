-- outbox: an index of what operators have discarded, so that it is found in a large table. Where the table is large already, create it
-- beforehand with "create index concurrently", which keeps nobody from writing.

create index if not exists outbox_event_dead on outbox_event (id) where status = 'DEAD';

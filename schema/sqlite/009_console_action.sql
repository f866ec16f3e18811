-- console: what people have done by a console, one row for each action, written before it is done.

create table if not exists console_action (
  -- an id is never used again
  id         integer primary key autoincrement,
  begun_at   text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  ended_at   text,                       -- null while it is being done, and for ever if the process ended meanwhile, or could not write it
  done_by    text    not null,
  action     text    not null,           -- "dead.redrive" for example
  target     text    not null default '', -- what it was done to
  reason     text    not null default '',
  changed    integer,                    -- how much was changed; null until the action has ended
  error      text    not null default ''  -- why it failed, or did not come to its end
);

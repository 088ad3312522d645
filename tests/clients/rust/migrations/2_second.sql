create type rust_mood as enum ('sad', 'ok');
alter table rust_notes add mood rust_mood not null default 'ok', add tags text[] not null default '{}', add data jsonb;

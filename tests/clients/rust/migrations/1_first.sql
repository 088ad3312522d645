create table rust_notes (id bigserial primary key, body text not null unique);
create function rust_touch() returns trigger language plpgsql as $$ begin new.body := trim(new.body); return new; end $$;
create trigger rust_touch before insert on rust_notes for each row execute function rust_touch();

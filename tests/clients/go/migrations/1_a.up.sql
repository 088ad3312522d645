create table gm_users (id bigserial primary key, name text not null);
create function gm_touch() returns trigger language plpgsql as $$ begin new.name := upper(new.name); return new; end $$;
create trigger gm_touch before insert on gm_users for each row execute function gm_touch();

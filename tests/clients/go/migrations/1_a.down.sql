drop table gm_users; drop function gm_touch();
